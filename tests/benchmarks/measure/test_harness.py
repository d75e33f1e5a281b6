from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.fakes import MILLISECOND, Clock, FakeTiming, entries, measurement, opener
from tests.tiny import tiny_artifact
from trimaran.benchmarks.measure.harness import (
    HarnessCheck,
    Twins,
    check_harness,
    floor_ns,
    measure_twins,
    overhead,
    twins_verdicts,
    warnings,
)
from trimaran.benchmarks.measure.measurement import Measurement
from trimaran.benchmarks.measure.runner import Effort, RaceEntry, measure
from trimaran.benchmarks.measure.steadiness import beside_words, drift, flagged_rounds, unsteady, usual_delay
from trimaran.benchmarks.report.figures import find, speedups
from trimaran.core.pinning import cores_for
from trimaran.core.samples import Round, Shape

SHAPE = Shape(batch=1, sequence=8)
EFFORT = Effort(rounds=5, minimum_samples=10, minimum_time_s=0.0, warmup_time_s=0.0, budget_s=1e9)


def raced(tmp_path: Path, contenders: dict[str, FakeTiming], clock: Clock, **options: dict[str, object]) -> dict:
    made = [
        RaceEntry(entry.name, entry.artifact, **options.get(entry.name, {}))  # type: ignore[arg-type]
        for entry in entries(tiny_artifact(tmp_path), *contenders)
    ]
    found = measure(made, (SHAPE,), threads=1, effort=EFFORT, open_probe=opener(contenders, []), clock_s=clock.seconds)
    return {name: find(found.measurements, name, SHAPE) for name in contenders}


def test_a_against_a_is_no_difference_and_a_called_twice_is_slower(tmp_path: Path) -> None:
    clock = Clock()
    names = ("first", "second", "doubled")
    contenders = {name: FakeTiming(clock, median_ms=3.0, seed=seed) for seed, name in enumerate(names)}
    found = raced(tmp_path, contenders, clock, doubled={"repeat": 2})
    twins = Twins(candidate="a", shape=SHAPE, **{name: found[name].rounds for name in names})
    (_, again), (twice, slower) = twins_verdicts(twins)
    assert (again, slower) == ("no difference", "slower")
    assert twice.median == pytest.approx(0.5, rel=0.05)


def test_what_nothing_is_decided_on_runs_the_losing_rounds(tmp_path: Path) -> None:
    clock = Clock()
    contenders = {name: FakeTiming(clock, median_ms=1.0, seed=1) for name in ("whole", "brief")}
    found = raced(tmp_path, contenders, clock, brief={"brief": True})
    assert [len(found[name].rounds) for name in contenders] == [5, EFFORT.losing_rounds]


def check(timed_ns: list[int], bare_ns: int) -> HarnessCheck:
    return HarnessCheck(
        null=(Round(samples_ns=(200, 300, 900)),),
        bare=tuple(Round(samples_ns=(bare_ns,)) for _ in range(5)),
        timed=tuple(Round(samples_ns=tuple(timed_ns)) for _ in range(5)),
    )


def test_overhead_is_the_harness_against_the_bare_loop() -> None:
    cheap, dear = overhead(check([1_000_500, 1_001_500], 1_000_000)), overhead(check([1_050_000], 1_000_000))
    assert cheap is not None and cheap.holds and cheap.ratio.median == pytest.approx(1.001)
    assert dear is not None and not dear.holds
    assert floor_ns(check([1], 1)) == 300
    assert warnings(check([1_000_500], 1_000_000)) == ()
    assert "5.0% longer than a bare loop" in warnings(check([1_050_000], 1_000_000))[0]
    noisy = check([1], 1_000_000).model_copy(
        update={"timed": tuple(Round(samples_ns=(ns * 10_000,)) for ns in (90, 150, 104, 95, 180))}
    )
    assert "could not be told" in warnings(noisy)[0]


def test_a_harness_that_sees_a_difference_in_none_is_told_on() -> None:
    fast, slow = (tuple(Round(samples_ns=(ms * MILLISECOND,) * 5) for _ in range(3)) for ms in (10, 14))
    twins = Twins(candidate="a", shape=SHAPE, first=slow, second=fast, doubled=fast)
    same, twice = warnings(check([1_000_000], 1_000_000).model_copy(update={"twins": twins}))
    assert "a came out as faster than itself" in same
    assert "too noisy" in twice


def test_the_real_harness_measures_itself_in_a_process_of_its_own() -> None:
    found = check_harness()
    floor, cost = floor_ns(found), overhead(found)
    assert floor is not None and floor > 0
    assert cost is not None and cost.ratio.low <= cost.ratio.median <= cost.ratio.high
    assert len(found.null) == len(found.bare) == len(found.timed)


def test_real_twins_take_part_in_the_same_rounds(tmp_path: Path) -> None:
    effort = Effort(rounds=2, minimum_rounds=2, minimum_samples=5, minimum_time_s=0.0)
    twins = measure_twins(
        RaceEntry("tiny", tiny_artifact(tmp_path)), SHAPE, threads=1, cores=cores_for(1), effort=effort
    )
    assert [len(rounds) for rounds in (twins.first, twins.second, twins.doubled)] == [2, 2, 2]


def with_rounds(name: str, medians_ms: list[float]) -> Measurement:
    base = measurement(name, SHAPE, 10.0)
    rounds = tuple(Round(samples_ns=(int(ms * MILLISECOND),) * 6) for ms in medians_ms)
    return base.model_copy(update={"rounds": rounds})


def test_a_round_that_differs_is_flagged_and_not_averaged_away() -> None:
    noisy = with_rounds("noisy", [10, 10, 18, 10, 10])
    (flag,) = flagged_rounds([with_rounds("calm", [10] * 5), noisy])
    assert (flag.candidate, flag.round, flag.times) == ("noisy", 2, 1.8)
    assert "1 of 10 turns differ" in unsteady([with_rounds("calm", [10] * 5), noisy])
    assert len(noisy.samples_ns) == 30, "its samples stay in every number"


def test_all_slowing_down_together_is_a_drift_and_one_noisy_round_is_not() -> None:
    slowing = [10, 10, 10.5, 11, 11.5, 12]
    both = [with_rounds("a", slowing), with_rounds("b", slowing)]
    assert drift(both) > 1.1
    assert "drifted" in unsteady(both)
    assert unsteady([with_rounds("a", [10, 10.2, 10, 9.9, 10.1, 10])]) == ""


def delayed(row: Measurement, share: float) -> Measurement:
    return row.model_copy(update={"rounds": tuple(r.model_copy(update={"delayed": share}) for r in row.rounds)})


def test_a_steady_small_load_is_told_by_how_much_it_delays_the_usual_turn() -> None:
    calm = with_rounds("a", [10] * 6)
    assert usual_delay([calm]) is None and beside_words([calm]) == ""
    rare = calm.model_copy(update={"rounds": (*delayed(calm, 0.03).rounds[1:], *delayed(calm, 0.2).rounds[:1])})
    assert unsteady([rare]) == "", "a single turn that waited says nothing of the usual one"
    loaded = [delayed(calm, 0.12), delayed(with_rounds("b", [5] * 6), 0.14)]
    assert beside_words(loaded) == ", beside other work that delayed calls by 12%"
    assert "speed-ups over it may be too high" in unsteady(loaded)


def test_threads_get_cores_of_their_own_before_they_share_one(tmp_path: Path) -> None:
    for core, siblings in enumerate(("0,2", "1,3", "0,2", "1,3")):
        folder = tmp_path / f"cpu{core}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(siblings + "\n")
    allowed = {0, 1, 2, 3}
    assert cores_for(2, topology=tmp_path, allowed=allowed) == (0, 1)
    assert cores_for(3, topology=tmp_path, allowed=allowed) == (0, 1, 2)
    assert cores_for(2, topology=tmp_path, allowed={1, 3}) == (1, 3)


def test_who_took_part_briefly_is_compared_over_the_rounds_it_took_part_in() -> None:
    """The machine was slow while both ran: the reference's later, faster rounds do not make the other look worse."""
    base, brief = with_rounds("eager", [20, 20, 10, 10, 10]), with_rounds("brief", [10, 10])
    (ratio,) = speedups([base, brief], "brief", reference="eager").values()
    assert ratio == (2.0, 2.0, 2.0, 2)
