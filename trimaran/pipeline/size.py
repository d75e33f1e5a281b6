"""`trimaran size`: measures one server with one caller, and predicts how many of them a load needs."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from trimaran.benchmarks.scenarios.sizing import MOST_REPLICAS, MeasuredServer, Predicted, fewest_replicas, simulate
from trimaran.core.errors import UsageError
from trimaran.core.repository import models_in
from trimaran.core.spec import Frozen
from trimaran.serving.client import Client
from trimaran.serving.client.calls import query
from trimaran.serving.container.image import served_model

_ROUNDS, _WARM_UP = 30, 3
_MOST_OF_A_BATCH = 32
# Of each size that is smaller.
_TEXTS_A_ROUND = 8


class Sized(Frozen):
    name: str
    rate: float
    p99_ms: float
    # Replicas that keep the p99 under both kinds of arrivals.
    replicas: int
    # With one more, so that the target holds when a replica dies.
    replicas_with_spare: int
    predicted: tuple[Predicted, ...]
    # The same load when one of `replicas` has died; empty for a single replica.
    when_one_dies: tuple[Predicted, ...]
    # The most texts that one replica answers a second, and for each CPU that it is given.
    most_texts_per_s: float
    texts_per_cpu_s: float
    # For all `replicas`, in the unit of the price; None without a price.
    cost_per_hour: float | None
    cost_per_million_texts: float | None
    # Median milliseconds of the measured batches, by their size.
    measured_ms: dict[int, float]


def measure_server(client: Client, name: str, texts: Sequence[str], *, instances: int) -> MeasuredServer:
    """Seconds of batches of 1, 2, 4, … texts, in rounds, so that a disturbance falls on all sizes alike.

    Texts differ in length, and a few long ones decide the tail. So small batches are sent more often, and each size
    takes texts from all parts of the given ones.
    """
    model = client.model(name)
    largest = min(model.max_batch_size, _MOST_OF_A_BATCH)
    sizes = sorted({largest, *(2**power for power in range(int(math.log2(largest)) + 1))})
    seconds: dict[int, list[float]] = {size: [] for size in sizes}
    shuffled = [texts[index] for index in np.random.default_rng(1).permutation(len(texts))]
    supplies = {size: itertools.cycle(shuffled) for size in sizes}
    for number in range(_WARM_UP + _ROUNDS):
        for size in sizes:
            for _ in range(max(1, _TEXTS_A_ROUND // size)):
                batch = list(itertools.islice(supplies[size], size))
                began = time.perf_counter()
                client.ask(name, lambda model, batch=batch: query(model, batch))  # type: ignore[misc]
                if number >= _WARM_UP:
                    seconds[size].append(time.perf_counter() - began)
    return MeasuredServer(seconds, instances)


def size(
    repository: Path,
    name: str,
    client: Client,
    texts: Sequence[str],
    *,
    rate: float,
    p99_ms: float,
    price: float | None = None,
) -> Sized:
    """Raises UsageError if no number of replicas keeps the target: a single batch takes longer already."""
    (model,) = (model for model in models_in(repository) if model.name == name)
    group = model.config.instance_group if model.config else None
    server = measure_server(client, name, texts, instances=group.count if group else 1)
    known: dict[int, tuple[Predicted, ...]] = {}

    def predicted(replicas: int) -> tuple[Predicted, ...]:
        if replicas not in known:
            known[replicas] = tuple(
                simulate(server, replicas, rate=rate, arrivals=arrivals) for arrivals in ("poisson", "bursts")
            )
        return known[replicas]

    def keeps(replicas: int) -> bool:
        return all(load.p99_ms <= p99_ms for load in predicted(replicas))

    # Fewer than these could not even keep up with the mean of the load.
    least = max(1, math.ceil(rate / server.most_texts_per_s))
    replicas = fewest_replicas(keeps, least=min(least, MOST_REPLICAS))
    if replicas is None:
        fastest = predicted(MOST_REPLICAS)
        worst = max(load.p99_ms for load in fastest)
        raise UsageError(
            f"{rate:g} texts a second with a p99 of {p99_ms:g} ms: {MOST_REPLICAS} replicas reach {worst:.1f} ms.",
            hint="Allow more time, send shorter texts, or deploy a faster candidate.",
        )
    threads = served_model(repository, name).threads
    cost = None if price is None else price * replicas
    return Sized(
        name=name,
        rate=rate,
        p99_ms=p99_ms,
        replicas=replicas,
        replicas_with_spare=replicas + 1,
        predicted=predicted(replicas),
        when_one_dies=predicted(replicas - 1) if replicas > 1 else (),
        most_texts_per_s=server.most_texts_per_s,
        texts_per_cpu_s=server.most_texts_per_s / (threads * server.instances),
        cost_per_hour=cost,
        cost_per_million_texts=None if cost is None else cost / (rate * 3600) * 1e6,
        measured_ms={texts: 1e3 * sorted(times)[len(times) // 2] for texts, times in server.seconds.items()},
    )
