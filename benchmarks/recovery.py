"""How long callers wait when something dies: a python stub, then the whole server, killed again and again under load.

    python benchmarks/recovery.py model_repository minilm -o benchmarks/results/recovery.json

Seconds from the kill to the next right answer that was asked for after it, while callers ask without a pause. Every
answer is compared with the one that the same text got alone before. Exit 1 when a claim does not hold.
"""

from __future__ import annotations

import os
import signal
import statistics
import sys
import tempfile
import threading
import time

import psutil
from experiment import distance, finish, options

from trimaran.core.corpus import shipped_texts
from trimaran.core.errors import TrimaranError
from trimaran.serving.client import Client
from trimaran.serving.triton import daemon, processes

LARGEST_CHANGE = 1e-4
_PATIENCE_S = 120.0


class ConstantCallers:
    """Threads that ask until the end."""

    def __init__(self, url: str, model: str, count: int) -> None:
        # (asked, answered) moments of right answers.
        self.right: list[tuple[float, float]] = []
        self.wrong, self.refused = 0, 0
        self._url, self._model, self._ended = url, model, threading.Event()
        self._texts = list(shipped_texts("judging")[:16])
        with Client(url) as client:
            self._expected = [client.embed(model, [text])[0] for text in self._texts]
        self._threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(count)]

    def _ask(self, index: int) -> None:
        with Client(self._url, retries=0, timeout_s=30) as client:
            while not self._ended.is_set():
                index = (index + 1) % len(self._texts)
                asked_s = time.perf_counter()
                try:
                    vector = client.embed(self._model, [self._texts[index]])[0]
                except TrimaranError:
                    self.refused += 1
                    time.sleep(0.01)
                    continue
                if distance(vector, self._expected[index]) <= LARGEST_CHANGE:
                    self.right.append((asked_s, time.perf_counter()))
                else:
                    self.wrong += 1

    def __enter__(self) -> ConstantCallers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def next_right(self, after_s: float) -> float:
        """Seconds from `after_s` to the first right answer to a question that was asked later."""
        while time.perf_counter() - after_s < _PATIENCE_S:
            later = [answered_s for asked_s, answered_s in list(self.right) if asked_s > after_s]
            if later:
                return min(later) - after_s
            time.sleep(0.01)
        return float("inf")


def victim_of(state: daemon.Running, kind: str) -> int:
    if kind == "stub":
        return next(iter(processes.stubs_of(state.pid)))
    family = psutil.Process(state.pid).children(recursive=True)
    return next(process.pid for process in family if process.name() == "tritonserver")


def main() -> int:
    parser = options(__doc__, served=True)
    parser.add_argument("--callers", type=int, default=8)
    parser.add_argument("--kills", type=int, default=5, help="of each kind")
    parser.add_argument("--limit", type=float, default=5.0, help="seconds that recovering from a killed stub may take")
    asked = parser.parse_args()
    samples: dict[str, list[float]] = {"stub": [], "server": []}
    with tempfile.TemporaryDirectory() as home:
        os.environ["TRIMARAN_HOME"] = home
        state = daemon.serve_detached(asked.repository)
        try:
            with ConstantCallers(f"127.0.0.1:{state.grpc_port}", asked.model, asked.callers) as callers:
                for kind, times_s in samples.items():
                    for _ in range(asked.kills):
                        time.sleep(2.0)
                        victim = victim_of(state, kind)
                        killed_s = time.perf_counter()
                        os.kill(victim, signal.SIGKILL)
                        times_s.append(callers.next_right(killed_s))
                        print(f"{kind} killed: right again after {times_s[-1]:.2f} s")
            counted = next(running for running in daemon.running() if running.pid == state.pid)
        finally:
            daemon.stop()
    result = {
        "schema": 1,
        "what": "seconds from a kill to the next right answer, under load",
        "model": asked.model,
        "callers": asked.callers,
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
            "a killed stub is replaced in time": max(samples["stub"]) <= asked.limit,
            "a killed server comes back": max(samples["server"]) < _PATIENCE_S,
        },
    }
    return finish(result, asked.output)


if __name__ == "__main__":
    sys.exit(main())
