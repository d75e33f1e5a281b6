"""More load than can be borne: 200 callers, 1.5 times the measured capacity, for a minute at the gateway with OpenAI's
client, or for four at Triton with ours.

    python benchmarks/load.py model_repository minilm --target gateway -o benchmarks/results/load-gateway.json

Every answer is compared with the one that the same text got alone before; every request that was sent is accounted for.
Exit 1 when one of the claims does not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import experiment
import numpy as np
from experiment import finish
from load_calls import LoadTarget, RequestOutcome, attempt, connected, gateway_before, growth, watch_memory

from trimaran.core.corpus import shipped_texts
from trimaran.serving.client import AsyncClient
from trimaran.serving.triton.server import launch

TEXTS = 64


async def capacity(
    target: LoadTarget, texts: Sequence[str], wanted: np.ndarray, *, callers: int, seconds: float
) -> float:
    """Answers a second with `callers` who ask again as soon as they are answered; the first fifth is warm-up."""
    begin, end = time.perf_counter(), time.perf_counter() + seconds
    done: list[float] = []

    async def caller(number: int) -> None:
        place = number
        while time.perf_counter() < end:
            outcome = await attempt(target, texts[place % len(texts)], wanted[place % len(texts)][None], begin)
            if outcome.is_right:
                done.append(time.perf_counter())
            place += callers

    await asyncio.gather(*(caller(number) for number in range(callers)))
    warm = begin + seconds / 5
    return sum(1 for moment in done if warm <= moment <= end) / (end - warm)


async def overload(
    target: LoadTarget, texts: Sequence[str], wanted: np.ndarray, *, callers: int, seconds: float, rate: float
) -> list[RequestOutcome]:
    """`callers`, each with a schedule of its own, together `rate` requests a second; who is late sends at once."""
    begin = time.perf_counter()
    outcomes: list[RequestOutcome] = []
    step = callers / rate

    async def caller(number: int) -> None:
        due, place = number / rate, number
        while due < seconds:
            await asyncio.sleep(max(0.0, begin + due - time.perf_counter()))
            if time.perf_counter() - begin >= seconds:
                return
            outcomes.append(await attempt(target, texts[place % len(texts)], wanted[place % len(texts)][None], begin))
            due += step
            place += callers

    await asyncio.gather(*(caller(number) for number in range(callers)))
    return outcomes


def latencies(outcomes: Sequence[RequestOutcome]) -> dict[str, float]:
    taken = sorted(outcome.seconds for outcome in outcomes if outcome.status == "200")
    if not taken:
        return {}
    ranks = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
    return {name: taken[min(len(taken) - 1, int(rank * len(taken)))] for name, rank in ranks.items()}


async def run(
    options: argparse.Namespace, triton_url: str, gateway: tuple[str, str], pids: list[int]
) -> dict[str, Any]:
    texts = shipped_texts("judging")[:TEXTS]
    async with AsyncClient(triton_url, concurrency=1) as alone:
        wanted = np.concatenate([await alone.embed(options.model, [text]) for text in texts])
    samples: list[tuple[float, int]] = []
    async with connected(options.target, options.model, triton_url, gateway) as target:
        # The first request loads the client's modules, which can take a second.
        await attempt(target, texts[0], wanted[:1], 0.0)
        able = await capacity(target, texts, wanted, callers=options.capacity_callers, seconds=options.capacity_seconds)
        print(f"capacity {able:.0f} a second; now {options.callers} callers at {options.factor:g} times that")
        watching = asyncio.create_task(watch_memory(pids, samples))
        rate = max(able, 1.0) * options.factor
        outcomes = await overload(target, texts, wanted, callers=options.callers, seconds=options.seconds, rate=rate)
        watching.cancel()
    return verdict(options, able, outcomes, samples)


def verdict(
    options: argparse.Namespace, able: float, outcomes: Sequence[RequestOutcome], samples: Sequence[tuple[float, int]]
) -> dict[str, Any]:
    taken, memory = latencies(outcomes), growth(samples)
    # A request admitted at the last moment still has those before it in Triton to wait for.
    bound_s = options.queue_timeout + 2 * options.in_flight / max(able, 1e-9) + 1.0
    accepted = sum(outcome.status == "200" for outcome in outcomes)
    claims = {
        "no wrong answer": not any(outcome.wrong for outcome in outcomes),
        "no lost answer": not any(outcome.lost for outcome in outcomes),
        "every refusal a proper status": not any(outcome.improper for outcome in outcomes),
        # At Triton of the second minute to the fourth: engines keep the memory of their largest call (decision 140).
        "memory levels off": memory["growth"] <= 0.05,
        "latency bounded": bool(taken) and taken["max"] <= bound_s,
        "capacity kept": accepted / options.seconds >= 0.7 * able,
    }
    return {
        "schema": 1,
        "what": f"{options.callers} callers, {options.seconds:g} s, {options.factor:g} times capacity",
        "target": options.target,
        "model": options.model,
        "settings": {key: value for key, value in vars(options).items() if isinstance(value, (int, float, str))},
        "capacity_per_s": able,
        "sent": len(outcomes),
        "accepted_per_s": accepted / options.seconds,
        "statuses": dict(Counter(outcome.status for outcome in outcomes)),
        "wrong": sum(outcome.wrong for outcome in outcomes),
        "lost": sum(outcome.lost for outcome in outcomes),
        "latency_s": taken,
        "latency_bound_s": bound_s,
        "memory": {**memory, "samples": [list(sample) for sample in samples]},
        "claims": claims,
        "outcomes": [asdict(outcome) for outcome in outcomes] if options.raw else [],
    }


def main() -> int:
    parser = experiment.options(__doc__, served=True)
    parser.add_argument("--target", choices=["gateway", "triton"], default="gateway")
    parser.add_argument("--callers", type=int, default=200)
    parser.add_argument("--seconds", type=float, help="by default 60 at the gateway and 240 at Triton")
    parser.add_argument("--factor", type=float, default=1.5)
    parser.add_argument("--capacity-callers", type=int, default=32)
    parser.add_argument("--capacity-seconds", type=float, default=15.0)
    parser.add_argument("--in-flight", type=int, default=32, help="texts that Triton has at a time")
    parser.add_argument("--queue", type=int, default=64, help="requests that may wait in the gateway")
    parser.add_argument("--queue-timeout", type=float, default=None, help="seconds; at Triton that of its own queue")
    parser.add_argument("--raw", action="store_true", help="keep every outcome in the result")
    options = parser.parse_args()
    if options.seconds is None:
        options.seconds = 60.0 if options.target == "gateway" else 240.0
    if options.queue_timeout is None:
        options.queue_timeout = 1.0 if options.target == "gateway" else 10.0
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(launch(options.repository))
        gateway, pids = ("", ""), [server.keeper_pid]
        if options.target == "gateway":
            limits = {
                "--in-flight": options.in_flight,
                "--queue": options.queue,
                "--queue-timeout": options.queue_timeout,
            }
            settings = [str(word) for pair in limits.items() for word in pair]
            url, key, pid = stack.enter_context(gateway_before(options.repository, server.grpc_url, folder, *settings))
            gateway, pids = (url, key), [server.keeper_pid, pid]
        result = asyncio.run(run(options, server.grpc_url, gateway, pids))
    return finish(result, options.output, hidden=("memory", "outcomes", "settings"))


if __name__ == "__main__":
    sys.exit(main())
