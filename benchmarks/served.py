"""What serving costs: the same deployed model in process and over gRPC, in turns, and the server's memory over time.

    python benchmarks/served.py model_repository minilm -o benchmarks/results/served.json

In process is the version's own text stage, opened in a child without Triton: one text a call against one caller, and
as many texts a call as there are callers. Every served answer is first compared with the one in process. Then the
server is asked 100,000 times while its memory is watched. Exit 1 when a claim does not hold.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from load import growth

from trimaran.core.corpus import shipped_texts
from trimaran.core.environment import capture
from trimaran.model_repository.versions import model_versions
from trimaran.pipeline.suite.served import Driver, ServedTarget
from trimaran.serving.client import Client
from trimaran.serving.triton.processes import memory_bytes
from trimaran.serving.triton.server import launch

TEXTS = 64
LARGEST_CHANGE = 1e-5
_CHUNK = 2_000


def in_process(folder: Path) -> None:
    """The child: a line with what to do in, a line with what came of it out."""
    from trimaran.runtime.answers import ANSWERS
    from trimaran.runtime.triton_text_model import opened

    # All CPUs, however many the served processes were tuned to have each.
    engine, answering, settings = opened(folder, threads=len(os.sched_getaffinity(0)))
    texts = shipped_texts("judging")[:TEXTS]
    answer = ANSWERS[settings["task"]]

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


@contextmanager
def child_of(folder: Path) -> Iterator[InProcess]:
    command = [sys.executable, __file__, "--in-process", str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield InProcess(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()


def rounds_of(options: argparse.Namespace, child: InProcess, driver: Driver) -> list[dict[str, float]]:
    """In turns, so that whatever else the machine does meets all of them."""

    def served(callers: int) -> Any:
        return driver.load(
            "closed_loop",
            within_s=options.seconds,
            callers=callers,
            samples=1,
            time_s=options.seconds,
            limit_s=options.seconds,
        )

    driver.load("warm_up", within_s=options.seconds, calls=TEXTS)
    found = []
    for number in range(options.rounds):
        alone = child(size=1, seconds=options.seconds)
        one = served(1)
        together = child(size=options.callers, seconds=options.seconds)
        many = served(options.callers)
        assert not (one.failures or many.failures), "a request failed"
        found.append(
            {
                "in_process_p50_ms": statistics.median(alone["samples_ns"]) / 1e6,
                "served_p50_ms": statistics.median(one.latencies_ns) / 1e6,
                "in_process_alone_per_s": alone["texts"] / alone["elapsed_ns"] * 1e9,
                "in_process_per_s": together["texts"] / together["elapsed_ns"] * 1e9,
                "served_per_s": len(many.latencies_ns) / many.elapsed_ns * 1e9,
                "served_crowd_p50_ms": statistics.median(many.latencies_ns) / 1e6,
            }
        )
        print(f"round {number + 1}: " + ", ".join(f"{key} {value:.2f}" for key, value in found[-1].items()), flush=True)
    return found


def memory_over(options: argparse.Namespace, driver: Driver, pid: int) -> list[tuple[int, int]]:
    """(requests so far, resident bytes of the server with its stubs)."""
    samples, asked = [], 0
    while asked < options.requests:
        size = min(_CHUNK, options.requests - asked)
        found = driver.load(
            "closed_loop", within_s=600, callers=options.callers, samples=size, time_s=0.0, limit_s=600.0
        )
        assert not found.failures, "a request failed"
        asked += len(found.latencies_ns)
        samples.append((asked, memory_bytes(pid)))
        print(f"{asked} requests: {samples[-1][1] >> 20} MiB", flush=True)
    return samples


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repository", type=Path)
    parser.add_argument("model", help="an embedding model of the repository")
    parser.add_argument("--callers", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each of the four measurements of a round")
    parser.add_argument("--requests", type=int, default=100_000, help="over which the memory is watched")
    parser.add_argument("--most-added-ms", type=float, default=1.2)
    parser.add_argument("--least-share", type=float, default=0.85)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    version = model_versions(options.repository, options.model).served[-1]
    texts = shipped_texts("judging")[:TEXTS]
    with launch(options.repository) as server, child_of(options.repository / options.model / str(version)) as child:
        target = ServedTarget(kind="triton", model=options.model, task="embedding", urls={"grpc": server.grpc_url})
        with Client(server.grpc_url) as client:
            served, own = client.embed(options.model, texts), np.asarray(child(), np.float32)
        apart = 1 - (served * own).sum(-1) / np.linalg.norm(served, axis=-1) / np.linalg.norm(own, axis=-1)
        driver = Driver(target, "grpc", texts)
        try:
            rounds = rounds_of(options, child, driver)
            memory = memory_over(options, driver, server.keeper_pid)
        finally:
            driver.close()
    middle = {key: statistics.median(one[key] for one in rounds) for key in rounds[0]}
    # Of each round by itself: a slow moment of the machine then is in both.
    added_ms = statistics.median(one["served_p50_ms"] - one["in_process_p50_ms"] for one in rounds)
    share = statistics.median(one["served_per_s"] / one["in_process_per_s"] for one in rounds)
    grown = growth(memory)["growth"] if memory else 0.0
    result = {
        "schema": 1,
        "what": "one text over gRPC beside the same stage in process; many callers beside as many texts a call",
        "model": options.model,
        "callers": options.callers,
        "settings": json.loads((options.repository / options.model / str(version) / "serving.json").read_text()),
        "medians": middle,
        "added_p50_ms": added_ms,
        "share_of_in_process": share,
        "share_of_in_process_alone": statistics.median(
            one["served_per_s"] / one["in_process_alone_per_s"] for one in rounds
        ),
        "memory_growth": grown,
        "rounds": rounds,
        "memory": memory,
        "claims": {
            "served answers are those in process": bool(apart.max() <= LARGEST_CHANGE),
            "one caller waits little longer than in process": added_ms <= options.most_added_ms,
            "many callers get nearly all of it": share >= options.least_share,
            "memory flat": grown <= 0.02,
        },
        "load_average": os.getloadavg()[0],
        "environment": capture().model_dump(mode="json"),
    }
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    left_out = ("environment", "rounds", "memory", "settings")
    print(json.dumps({key: value for key, value in result.items() if key not in left_out}, indent=1))
    return 0 if all(result["claims"].values()) else 1  # type: ignore[attr-defined]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--in-process"]:
        in_process(Path(sys.argv[2]))
        sys.exit(0)
    sys.exit(main())
