"""How many replicas a load needs: a simulation of arrivals, the gateway's choice of a server, and Triton's batcher.

Requests of one text arrive at random. Each goes to the replica with the least outstanding requests. A free
instance takes all waiting requests, up to the largest batch. It needs the time that was measured for such a batch.
Nothing here is measured: results are predictions.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from trimaran.core.spec import Frozen

Arrivals = Literal["poisson", "bursts"]
ArrivalTimes = npt.NDArray[np.float64]
MOST_REPLICAS = 1000
# Bursts: a fifth of the seconds has three times the rate, and the others half of it. The mean stays the rate.
_BURST_SHARE, _IN_BURSTS, _BETWEEN = 0.2, 3.0, 0.5
# At least so many requests, so that a p99 rests on two hundred of them, and so many seconds, so that queues can grow.
_LEAST_REQUESTS, _LEAST_S = 20_000, 20.0


@dataclass(frozen=True)
class MeasuredServer:
    """One replica as it was measured."""

    # Seconds of single batches, by the number of texts in them.
    seconds: Mapping[int, Sequence[float]]
    # Instances that work at the same time.
    instances: int

    @property
    def largest_batch(self) -> int:
        return max(self.seconds)

    @property
    def most_texts_per_s(self) -> float:
        """At the batch size that suits it best."""
        return self.instances * max(size / float(np.median(times)) for size, times in self.seconds.items())

    def batch_seconds(self, texts: int, random: np.random.Generator) -> float:
        """A draw for a batch of this size. Between two measured sizes it lies between draws for both."""
        sizes = sorted(self.seconds)
        above = next(size for size in sizes if size >= texts)
        below = max((size for size in sizes if size <= texts), default=above)
        position = random.integers(1 << 30)
        drawn = [self.seconds[size][position % len(self.seconds[size])] for size in (below, above)]
        return drawn[0] if above == below else float(np.interp(texts, (below, above), drawn))


class Predicted(Frozen):
    replicas: int
    arrivals: Arrivals
    p50_ms: float
    p99_ms: float
    # The share of the time that instances work.
    busy: float


def arrival_times(kind: Arrivals, rate: float, random: np.random.Generator) -> ArrivalTimes:
    """Moments in seconds, ascending."""
    seconds = max(_LEAST_S, _LEAST_REQUESTS / rate)
    counts = np.full(int(seconds), rate)
    if kind == "bursts":
        counts *= np.where(random.random(len(counts)) < _BURST_SHARE, _IN_BURSTS, _BETWEEN)
    moments = [second + random.random(number) for second, number in enumerate(random.poisson(counts))]
    return np.sort(np.concatenate(moments))


def simulate(server: MeasuredServer, replicas: int, *, rate: float, arrivals: Arrivals, seed: int = 1) -> Predicted:
    random = np.random.default_rng(seed)
    moments = arrival_times(arrivals, rate, random)
    outstanding = np.zeros(replicas, int)
    queues: list[deque[float]] = [deque() for _ in range(replicas)]
    free = [server.instances] * replicas
    # When a batch ends, on which replica, and when its requests arrived.
    running: list[tuple[float, int, list[float]]] = []
    latencies: list[float] = []
    busy_s = 0.0

    def start(replica: int, now: float) -> None:
        nonlocal busy_s
        waiting = queues[replica]
        while waiting and free[replica]:
            batch = [waiting.popleft() for _ in range(min(len(waiting), server.largest_batch))]
            seconds = server.batch_seconds(len(batch), random)
            busy_s += seconds
            free[replica] -= 1
            heapq.heappush(running, (now + seconds, replica, batch))

    def finish_until(now: float) -> None:
        while running and running[0][0] <= now:
            ended, replica, batch = heapq.heappop(running)
            latencies.extend(ended - arrived for arrived in batch)
            outstanding[replica] -= len(batch)
            free[replica] += 1
            start(replica, ended)

    for now in moments.tolist():
        finish_until(now)
        replica = int(outstanding.argmin())
        outstanding[replica] += 1
        queues[replica].append(now)
        start(replica, now)
    finish_until(np.inf)
    p50, p99 = np.percentile(latencies, (50, 99), method="higher")
    capacity_s = replicas * server.instances * float(moments[-1])
    return Predicted(
        replicas=replicas, arrivals=arrivals, p50_ms=1e3 * p50, p99_ms=1e3 * p99, busy=min(1.0, busy_s / capacity_s)
    )


def fewest_replicas(keeps: Callable[[int], bool], *, least: int = 1, most: int = MOST_REPLICAS) -> int | None:
    """The smallest number that keeps the target, or None. More replicas are taken to be never worse."""
    if not keeps(most):
        return None
    while least < most:
        middle = (least + most) // 2
        least, most = (least, middle) if keeps(middle) else (middle + 1, most)
    return most
