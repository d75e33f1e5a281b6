"""What serving costs: the same deployed model in process and over gRPC, in turns, and the server's memory over time.

    python benchmarks/served.py model_repository minilm -o benchmarks/results/served.json

In process is the version's own text stage, opened in a child without Triton: one text a call against one caller, and
as many texts a call as there are callers. Every served answer is first compared with the one in process. Then the
server is asked 100,000 times while its memory is watched. Exit 1 when a claim does not hold.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from experiment import distance, finish, options
from load import growth

from trimaran.core.corpus import shipped_texts
from trimaran.model_repository.versions import model_versions
from trimaran.pipeline.suite.callers import ServerCallers
from trimaran.pipeline.suite.load_driver import LoadDriver, ServedTarget
from trimaran.serving.client import Client
from trimaran.serving.triton.processes import memory_bytes
from trimaran.serving.triton.server import launch

TEXTS = 64
LARGEST_CHANGE = 1e-5
_CHUNK = 2_000


def in_process(folder: Path) -> None:
    """The child: a line with what to do in, a line with what came of it out."""
    from trimaran.runtime.tasks import served_task
    from trimaran.runtime.triton_text_model import opened

    # All CPUs, however many the served processes were tuned to have each.
    engine, answering, settings = opened(folder, threads=len(os.sched_getaffinity(0)))
    texts = shipped_texts("judging")[:TEXTS]
    answer = served_task(settings["task"]).answer

    def run(size: int, seconds: float) -> dict[str, Any]:
        taken: list[int] = []
        turns = itertools.cycle(range(0, len(texts), size))
        begun = time.perf_counter_ns()
        while time.perf_counter_ns() - begun < seconds * 1e9:
            place = next(turns)
            asked = time.perf_counter_ns()
            answer(answering, texts[place : place + size])
            taken.append(time.perf_counter_ns() - asked)
        return {"samples_ns": taken, "texts": len(taken) * size, "elapsed_ns": time.perf_counter_ns() - begun}

    def vectors() -> list[list[float]]:
        return [answer(answering, [text])[0].tolist() for text in texts]

    for line in sys.stdin:
        asked = json.loads(line)
        found = run(**asked) if asked else vectors()
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()
    engine.close()


class InProcess:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def __call__(self, **asked: Any) -> Any:
        """A run of `size` texts a call for `seconds`, or without arguments every text's vector."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


@contextlib.contextmanager
def child_of(folder: Path) -> Iterator[InProcess]:
    command = [sys.executable, __file__, "--in-process", str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield InProcess(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()


def rounds_of(asked: argparse.Namespace, child: InProcess, driver: LoadDriver) -> list[dict[str, float]]:
    """In turns, so that whatever else the machine does meets all of them."""

    def served(callers: int) -> Any:
        seconds = asked.seconds
        return driver.load(
            ServerCallers.closed_loop, seconds, callers=callers, samples=1, time_s=seconds, limit_s=seconds
        )

    driver.load(ServerCallers.warm_up, asked.seconds, calls=TEXTS)
    rounds = []
    for number in range(asked.rounds):
        alone = child(size=1, seconds=asked.seconds)
        one = served(1)
        together = child(size=asked.callers, seconds=asked.seconds)
        many = served(asked.callers)
        assert not (one.failures or many.failures), "a request failed"
        rounds.append(
            {
                "in_process_p50_ms": statistics.median(alone["samples_ns"]) / 1e6,
                "served_p50_ms": statistics.median(one.latencies_ns) / 1e6,
                "in_process_alone_per_s": alone["texts"] / alone["elapsed_ns"] * 1e9,
                "in_process_per_s": together["texts"] / together["elapsed_ns"] * 1e9,
                "served_per_s": len(many.latencies_ns) / many.elapsed_ns * 1e9,
                "served_crowd_p50_ms": statistics.median(many.latencies_ns) / 1e6,
            }
        )
        print(
            f"round {number + 1}: " + ", ".join(f"{key} {value:.2f}" for key, value in rounds[-1].items()), flush=True
        )
    return rounds


def memory_over(asked: argparse.Namespace, driver: LoadDriver, pid: int) -> list[tuple[int, int]]:
    """(requests so far, resident bytes of the server with its stubs)."""
    samples, sent = [], 0
    while sent < asked.requests:
        size = min(_CHUNK, asked.requests - sent)
        load = driver.load(
            ServerCallers.closed_loop, 600.0, callers=asked.callers, samples=size, time_s=0.0, limit_s=600.0
        )
        assert not load.failures, "a request failed"
        sent += len(load.latencies_ns)
        samples.append((sent, memory_bytes(pid)))
        print(f"{sent} requests: {samples[-1][1] >> 20} MiB", flush=True)
    return samples


def main() -> int:
    parser = options(__doc__, served=True)
    parser.add_argument("--callers", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each of the four measurements of a round")
    parser.add_argument("--requests", type=int, default=100_000, help="over which the memory is watched")
    parser.add_argument("--most-added-ms", type=float, default=1.2)
    parser.add_argument("--least-share", type=float, default=0.85)
    asked = parser.parse_args()
    version = model_versions(asked.repository, asked.model).served[-1]
    folder = asked.repository / asked.model / str(version)
    texts = shipped_texts("judging")[:TEXTS]
    with launch(asked.repository) as server, child_of(folder) as child:
        target = ServedTarget(kind="triton", model=asked.model, task="embedding", urls={"grpc": server.grpc_url})
        with Client(server.grpc_url) as client:
            apart = max(map(distance, client.embed(asked.model, texts), np.asarray(child(), np.float32)))
        with contextlib.closing(LoadDriver(target, "grpc", texts)) as driver:
            rounds = rounds_of(asked, child, driver)
            memory = memory_over(asked, driver, server.keeper_pid)

    def middle(figure: Callable[[dict[str, float]], float]) -> float:
        """The median over rounds; both sides of a round share the same slow moments of the machine."""
        return statistics.median(map(figure, rounds))

    added_ms = middle(lambda one: one["served_p50_ms"] - one["in_process_p50_ms"])
    share = middle(lambda one: one["served_per_s"] / one["in_process_per_s"])
    grown = growth(memory)["growth"] if memory else 0.0
    result = {
        "schema": 1,
        "what": "one text over gRPC beside the same stage in process; many callers beside as many texts a call",
        "model": asked.model,
        "callers": asked.callers,
        "settings": json.loads((folder / "serving.json").read_text()),
        "medians": {key: statistics.median(one[key] for one in rounds) for key in rounds[0]},
        "added_p50_ms": added_ms,
        "share_of_in_process": share,
        "share_of_in_process_alone": middle(lambda one: one["served_per_s"] / one["in_process_alone_per_s"]),
        "memory_growth": grown,
        "rounds": rounds,
        "memory": memory,
        "claims": {
            "served answers are those in process": apart <= LARGEST_CHANGE,
            "one caller waits little longer than in process": added_ms <= asked.most_added_ms,
            "many callers get nearly all of it": share >= asked.least_share,
            "memory flat": grown <= 0.02,
        },
    }
    return finish(result, asked.output, hidden=("rounds", "memory", "settings"))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--in-process"]:
        in_process(Path(sys.argv[2]))
        sys.exit(0)
    sys.exit(main())
