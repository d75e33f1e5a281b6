"""The simulation agrees with what queueing theory says where theory has an answer, and is monotone elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

from trimaran.benchmarks.scenarios.sizing import MeasuredServer, arrival_times, fewest_replicas, simulate

# One text at a time, 10 ms each.
PLAIN = MeasuredServer({1: [0.010]}, instances=1)
BATCHING = MeasuredServer({1: [0.010], 2: [0.011], 4: [0.013], 8: [0.017]}, instances=1)


def test_the_median_wait_of_one_server_is_that_of_theory() -> None:
    """M/D/1 at half of its capacity: the mean latency is service * (1 + rho / (2 * (1 - rho))) = 15 ms."""
    random = np.random.default_rng(3)
    moments = arrival_times("poisson", 50.0, random)
    free_at, latencies = 0.0, []
    for moment in moments:
        free_at = max(free_at, moment) + 0.010
        latencies.append(free_at - moment)
    assert np.mean(latencies) == pytest.approx(0.015, rel=0.05)
    found = simulate(PLAIN, 1, rate=50.0, arrivals="poisson", seed=3)
    assert found.p99_ms == pytest.approx(1e3 * float(np.percentile(latencies, 99, method="higher")), rel=1e-6)
    assert found.busy == pytest.approx(0.5, rel=0.05)


def test_batches_carry_a_load_that_single_texts_cannot() -> None:
    assert simulate(PLAIN, 1, rate=150.0, arrivals="poisson").p50_ms > 1000, "the queue grows without end"
    assert simulate(BATCHING, 1, rate=150.0, arrivals="poisson").p99_ms < 60


def test_bursts_have_the_same_mean_and_cost_more() -> None:
    random = np.random.default_rng(1)
    steady, bursts = (len(arrival_times(kind, 200.0, random)) for kind in ("poisson", "bursts"))
    assert bursts == pytest.approx(steady, rel=0.2)
    p99 = [simulate(BATCHING, 1, rate=150.0, arrivals=kind).p99_ms for kind in ("poisson", "bursts")]
    assert p99[1] > p99[0]


def test_a_batch_between_two_measured_sizes_takes_a_time_between_theirs() -> None:
    seconds = BATCHING.batch_seconds(3, np.random.default_rng(1))
    assert seconds == pytest.approx(0.012)
    assert BATCHING.most_texts_per_s == pytest.approx(8 / 0.017)


def test_the_fewest_replicas_are_found_and_none_where_there_are_none() -> None:
    asked: list[int] = []

    def keeps(replicas: int) -> bool:
        asked.append(replicas)
        return replicas >= 37

    assert fewest_replicas(keeps, least=5) == 37
    assert len(asked) < 15
    assert fewest_replicas(lambda replicas: False) is None
