"""`trimaran size` held against reality: predicted and measured latencies of 1, 2 and 3 replicas at three loads.

    python benchmarks/size_check.py model_repository minilm -o benchmarks/results/size-check.json      (11 minutes)

The replicas are servers on this machine, so they share its cores; `trimaran size` assumes a machine for each. Requests
of one text arrive by a Poisson process, in another order each round, and latencies count from the scheduled moment.
Measure on an idle machine.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

import experiment
import numpy as np

from trimaran.benchmarks.measure.quiet import CpuWatch
from trimaran.benchmarks.scenarios.sizing import MeasuredServer, simulate
from trimaran.core.corpus import shipped_texts
from trimaran.core.repository import models_in
from trimaran.pipeline.size import measure_server
from trimaran.serving.client import AsyncClient, Client
from trimaran.serving.triton.server import launch

REPLICAS = (1, 2, 3)
# Of the most texts a second that one replica answers.
LOADS = (0.1, 0.25, 0.4)


async def latencies(urls: Sequence[str], model: str, rate: float, *, seconds: float, seed: int) -> list[float]:
    """Seconds of each request, from the moment that it was due."""
    random = np.random.default_rng(seed)
    due = np.cumsum(random.exponential(1 / rate, int(rate * seconds)))
    texts = random.permutation(shipped_texts("calibration")).tolist()
    taken: list[float] = []
    async with AsyncClient(urls, concurrency=10_000, timeout_s=60) as client:
        await asyncio.gather(*(client.embed(model, [text]) for text in texts[:16]))
        begin = time.perf_counter()

        async def call(moment: float, text: str) -> None:
            await asyncio.sleep(max(0.0, begin + moment - time.perf_counter()))
            await client.embed(model, [text])
            taken.append(time.perf_counter() - begin - moment)

        await asyncio.gather(*(call(moment, texts[number % len(texts)]) for number, moment in enumerate(due)))
    return taken


def row(server: MeasuredServer, replicas: int, rate: float, taken: Sequence[float]) -> dict[str, Any]:
    predicted = simulate(server, replicas, rate=rate, arrivals="poisson")
    p50_ms, p99_ms = (1e3 * float(value) for value in np.percentile(taken, (50, 99), method="higher"))
    return {
        "replicas": replicas,
        "texts_per_s": rate,
        "requests": len(taken),
        "predicted_ms": {"p50": predicted.p50_ms, "p99": predicted.p99_ms},
        "measured_ms": {"p50": p50_ms, "p99": p99_ms},
        # Of the measured time: -0.2 means that the prediction is a fifth too short.
        "error": {"p50": predicted.p50_ms / p50_ms - 1, "p99": predicted.p99_ms / p99_ms - 1},
    }


def run(options: argparse.Namespace) -> dict[str, Any]:
    watch = CpuWatch(())
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(launch(options.repository, drain=False)) for _ in REPLICAS]
        urls = [server.grpc_url for server in servers]
        (config,) = (model.config for model in models_in(options.repository) if model.name == options.model)
        instances = config.instance_group.count if config and config.instance_group else 1
        with Client(urls[0]) as client:
            server = measure_server(client, options.model, shipped_texts("calibration"), instances=instances)
        cells = [(replicas, share * server.most_texts_per_s) for replicas in REPLICAS for share in LOADS]
        taken: dict[tuple[int, float], list[float]] = {cell: [] for cell in cells}
        for number in range(options.rounds):
            for cell in cells:
                replicas, rate = cell
                taken[cell] += asyncio.run(
                    latencies(urls[:replicas], options.model, rate, seconds=options.seconds, seed=number)
                )
    rows = [row(server, replicas, rate, taken[replicas, rate]) for replicas, rate in cells]
    errors = {name: [abs(entry["error"][name]) for entry in rows] for name in ("p50", "p99")}
    return {
        "schema": 1,
        "what": "trimaran size against measured replicas on one machine, which share its cores",
        "model": options.model,
        "cores": os.cpu_count(),
        "instances": instances,
        "most_texts_per_s": server.most_texts_per_s,
        "batch_ms": {size: 1e3 * float(np.median(times)) for size, times in server.seconds.items()},
        "rows": rows,
        "median_absolute_error": {name: float(np.median(values)) for name, values in errors.items()},
        "largest_absolute_error": {name: max(values) for name, values in errors.items()},
        "others_share_of_the_cores": watch.others_share(),
    }


def main() -> int:
    parser = experiment.options(__doc__, served=True)
    parser.add_argument("--seconds", type=float, default=30.0, help="for each load of each round")
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    return experiment.finish(run(options), options.output)


if __name__ == "__main__":
    sys.exit(main())
