"""How long callers wait when something dies: a python stub, then the whole server, killed again and again under load.

    python benchmarks/recovery.py model_repository minilm -o benchmarks/results/recovery.json

Seconds from the kill to the next right answer that was asked for after it, with callers who never rest. Every answer is
compared with the one that the same text got alone before. Exit 1 when a claim does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from trimaran.core.corpus import shipped_texts
from trimaran.core.environment import capture
from trimaran.core.errors import TrimaranError
from trimaran.serving.client import Client
from trimaran.serving.triton import daemon, processes

LARGEST_CHANGE = 1e-4
_PATIENCE_S = 120.0


class Callers:
    """`right` holds (asked, answered) moments of right answers."""

    def __init__(self, url: str, model: str, count: int) -> None:
        self.right: list[tuple[float, float]] = []
        self.wrong, self.refused = 0, 0
        self._url, self._model, self._ended = url, model, threading.Event()
        self._texts = list(shipped_texts("judging")[:16])
        with Client(url) as client:
            self._wanted = np.concatenate([client.embed(model, [text]) for text in self._texts])
        self._threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(count)]

    def _ask(self, place: int) -> None:
        with Client(self._url, retries=0, timeout_s=30) as client:
            while not self._ended.is_set():
                place = (place + 1) % len(self._texts)
                asked = time.perf_counter()
                try:
                    found = client.embed(self._model, [self._texts[place]])[0]
                except TrimaranError:
                    self.refused += 1
                    time.sleep(0.01)
                    continue
                wanted = self._wanted[place]
                distance = 1 - found @ wanted / np.linalg.norm(found) / np.linalg.norm(wanted)
                if distance <= LARGEST_CHANGE:
                    self.right.append((asked, time.perf_counter()))
                else:
                    self.wrong += 1

    def __enter__(self) -> Callers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def next_right(self, after: float) -> float:
        """Seconds from `after` to the first right answer to a question that was asked later."""
        while time.perf_counter() - after < _PATIENCE_S:
            found = [answered for asked, answered in list(self.right) if asked > after]
            if found:
                return min(found) - after
            time.sleep(0.01)
        return float("inf")


def victim_of(state: daemon.Running, kind: str) -> int:
    if kind == "stub":
        return next(iter(processes.stubs_of(state.pid)))
    family = psutil.Process(state.pid).children(recursive=True)
    return next(process.pid for process in family if process.name() == "tritonserver")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repository", type=Path)
    parser.add_argument("model", help="an embedding model of the repository")
    parser.add_argument("--callers", type=int, default=8)
    parser.add_argument("--kills", type=int, default=5, help="of each kind")
    parser.add_argument("--limit", type=float, default=5.0, help="seconds that recovering from a killed stub may take")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    samples: dict[str, list[float]] = {"stub": [], "server": []}
    with tempfile.TemporaryDirectory() as home:
        os.environ["TRIMARAN_HOME"] = home
        state = daemon.serve_detached(options.repository)
        try:
            with Callers(f"127.0.0.1:{state.grpc_port}", options.model, options.callers) as callers:
                for kind, found in samples.items():
                    for _ in range(options.kills):
                        time.sleep(2.0)
                        victim = victim_of(state, kind)
                        killed = time.perf_counter()
                        os.kill(victim, signal.SIGKILL)
                        found.append(callers.next_right(killed))
                        print(f"{kind} killed: right again after {found[-1]:.2f} s")
            counted = next(one for one in daemon.running() if one.pid == state.pid)
        finally:
            daemon.stop()
    result: dict[str, Any] = {
        "schema": 1,
        "what": "seconds from a kill to the next right answer, under load",
        "model": options.model,
        "callers": options.callers,
        "stub_s": samples["stub"],
        "server_s": samples["server"],
        "median_stub_s": statistics.median(samples["stub"]),
        "median_server_s": statistics.median(samples["server"]),
        "right": len(callers.right),
        "wrong": callers.wrong,
        "refused": callers.refused,
        "reloads": counted.reloads,
        "restarts": counted.restarts,
        "claims": {
            "no wrong answer": callers.wrong == 0,
            "a killed stub is replaced in time": max(samples["stub"]) <= options.limit,
            "a killed server comes back": max(samples["server"]) < _PATIENCE_S,
        },
        "load_average": os.getloadavg()[0],
        "environment": capture().model_dump(mode="json"),
    }
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({key: value for key, value in result.items() if key != "environment"}, indent=1))
    return 0 if all(result["claims"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
