from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.fakes import MILLISECOND, Clock, FakeTiming, entries, opener
from tests.tiny import tiny_artifact
from trimaran.benchmarks.measure.halving import beaten, leaders
from trimaran.benchmarks.measure.runner import Effort, Measured, RaceEntry, affordable, measure
from trimaran.benchmarks.report.figures import find, rounds_of_race, speedups
from trimaran.core.artifact import Artifact
from trimaran.core.errors import UsageError
from trimaran.core.samples import Round, Shape
from trimaran.judging.stats import separated

SHAPES = (Shape(batch=1, sequence=4), Shape(batch=4, sequence=8))
EFFORT = Effort(rounds=5, minimum_samples=10, minimum_time_s=0.0, warmup_time_s=0.0, budget_s=1e9)


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return tiny_artifact(tmp_path_factory.mktemp("store"))


def race(artifact: Artifact, contenders: dict[str, FakeTiming], clock: Clock, effort: Effort = EFFORT) -> Measured:
    opened: list[str] = []
    found = measure(
        entries(artifact, *contenders),
        SHAPES,
        threads=2,
        effort=effort,
        open_probe=opener(contenders, opened),
        clock_s=clock.seconds,
    )
    assert opened == [], "every contender is closed"
    return found


def test_a_against_a_is_no_difference_and_b_twice_as_slow_is_slower(artifact: Artifact) -> None:
    clock = Clock()
    contenders = {
        name: FakeTiming(clock, median_ms=ms, seed=seed)
        for seed, (name, ms) in enumerate({"a": 10.0, "again": 10.0, "b": 20.0}.items())
    }
    found = race(artifact, contenders, clock).measurements
    again, slow = (speedups(found, name, reference="a") for name in ("again", "b"))
    assert [separated(again[shape]) for shape in SHAPES] == ["no difference"] * 2
    assert [separated(slow[shape]) for shape in SHAPES] == ["slower"] * 2


def test_samples_are_kept_by_round_with_the_warm_up_apart(artifact: Artifact) -> None:
    clock = Clock()
    effort = EFFORT.model_copy(update={"warmup_samples": 3})
    found = race(artifact, {"a": FakeTiming(clock, median_ms=1.0, seed=1)}, clock, effort).measurements
    assert [len(m.rounds) for m in found] == [5, 5]
    assert all(len(turn.samples_ns) == 10 and len(turn.warmup_ns) == 3 for m in found for turn in m.rounds)


def test_contenders_take_turns_in_an_order_that_changes_from_round_to_round(artifact: Artifact) -> None:
    clock, order = Clock(), []

    class Noted(FakeTiming):
        def rest(self) -> None:
            order.append(self.load_s)

    contenders = {}
    for index in range(4):
        contenders[f"c{index}"] = Noted(clock, median_ms=1.0, seed=index)
        contenders[f"c{index}"].load_s = float(index)
    race(artifact, contenders, clock)
    turns = [tuple(order[start : start + 4]) for start in range(4, len(order), 4)]
    assert all(sorted(turn) == [0.0, 1.0, 2.0, 3.0] for turn in turns)
    assert len(set(turns)) > 1


def test_one_that_dies_in_the_middle_is_reported_and_the_others_go_on(artifact: Artifact) -> None:
    clock = Clock()
    contenders = {
        "steady": FakeTiming(clock, median_ms=1.0, seed=1),
        "mortal": FakeTiming(clock, median_ms=1.0, seed=2, dies_at_call=30),
    }
    found = race(artifact, contenders, clock)
    assert "SIGSEGV" in str(found.outcome("mortal").failure)
    assert found.outcome("steady").failure is None
    steady = find(found.measurements, "steady", SHAPES[0])
    assert steady is not None
    assert len(steady.rounds) == 5
    kept = [len(m.rounds) for m in found.measurements if m.candidate == "mortal"]
    assert kept == [1, 1], "finished rounds are kept, a half round is not"


def test_one_that_cannot_be_opened_is_reported(artifact: Artifact, tmp_path: Path) -> None:
    missing = artifact.model_copy().at(tmp_path / "gone")
    found = measure([RaceEntry("gone", missing)], SHAPES, threads=1, effort=EFFORT)
    assert "is not an artifact" in str(found.outcome("gone").failure)
    assert found.measurements == ()


def test_a_spent_budget_ends_the_run_after_the_least_rounds(artifact: Artifact) -> None:
    clock = Clock()
    effort = Effort(rounds=50, minimum_rounds=3, minimum_samples=1, minimum_time_s=0.0, budget_s=0.001)
    found = race(artifact, {"a": FakeTiming(clock, median_ms=10.0, seed=1)}, clock, effort)
    assert [len(m.rounds) for m in found.measurements] == [3, 3]


def test_when_a_whole_round_no_longer_fits_the_costliest_shape_sits_out(artifact: Artifact) -> None:
    clock = Clock()
    effort = Effort(rounds=9, minimum_rounds=2, minimum_samples=1, minimum_time_s=0.0, warmup_time_s=0.0, budget_s=0.3)
    found = race(artifact, {"a": FakeTiming(clock, median_ms=10.0, seed=1)}, clock, effort)
    cheap, costly = (len(m.rounds) for m in found.measurements)
    assert 2 <= costly < cheap


def test_who_is_beaten_beyond_doubt_stops_and_the_others_go_on(artifact: Artifact) -> None:
    clock, opened = Clock(), []
    speeds = {"eager": 40.0, "leader": 10.0, "near": 10.8, "far": 20.0, "rejected": 5.0}
    contenders = {name: FakeTiming(clock, median_ms=ms, seed=seed) for seed, (name, ms) in enumerate(speeds.items())}
    racing = [
        RaceEntry(
            entry.name, entry.artifact, competes=entry.name in ("leader", "near", "far"), brief=entry.name == "rejected"
        )
        for entry in entries(artifact, *contenders)
    ]
    found = measure(
        racing,
        SHAPES,
        threads=2,
        effort=EFFORT,
        open_probe=opener(contenders, opened),
        clock_s=clock.seconds,
        deciding=SHAPES,
    )
    rounds = {m.candidate: len(m.rounds) for m in found.measurements if m.shape == SHAPES[0]}
    assert rounds == {"eager": 5, "leader": 5, "near": 5, "far": 2, "rejected": 2}
    told = {outcome.candidate: outcome.stopped for outcome in found.outcomes if outcome.stopped}
    assert set(told) == {"far"}
    assert told["far"].startswith("after 2 rounds, at least 1.") and "slower than leader" in told["far"]
    assert found.outcome("far").failure is None


def test_leaders_that_the_rounds_do_not_tell_apart_run_on_without_the_others(artifact: Artifact) -> None:
    clock, opened = Clock(), []
    speeds = {"eager": 40.0, "a": 10.0, "b": 10.3, "slow": 11.5}
    contenders = {name: FakeTiming(clock, median_ms=ms, seed=seed) for seed, (name, ms) in enumerate(speeds.items())}
    racing = [
        RaceEntry(entry.name, entry.artifact, competes=entry.name != "eager")
        for entry in entries(artifact, *contenders)
    ]

    def rounds(**changes: Any) -> dict[str, list[int]]:
        measured = measure(
            racing,
            SHAPES,
            threads=2,
            effort=Effort(**{**EFFORT.model_dump(), "rounds": 6, "minimum_rounds": 6, **changes}),
            open_probe=opener(contenders, opened),
            clock_s=clock.seconds,
            deciding=SHAPES[:1],
        )
        counts: dict[str, list[int]] = {}
        for row in measured.measurements:
            counts.setdefault(row.candidate, []).append(len(row.rounds))
        assert rounds_of_race(measured.measurements, "eager") == (6, max(map(max, counts.values())) - 6)
        return counts

    assert rounds() == {"eager": [6, 6], "a": [18, 6], "b": [18, 6], "slow": [6, 6]}
    assert rounds(leader_rounds=0) == {name: [6, 6] for name in speeds}
    assert rounds(leader_budget_s=0.0) == {name: [6, 6] for name in speeds}


def test_shapes_that_disagree_in_single_rounds_are_compared_round_by_round() -> None:
    def rounds(*milliseconds: float) -> list[Round]:
        return [Round(samples_ns=(int(one * MILLISECOND),)) for one in milliseconds]

    short, long = SHAPES
    # Each shape alone has one bad round, so neither is told apart; together no round is.
    fast = {short: rounds(8, 8, 8, 8, 8, 11), long: rounds(22, 8, 8, 8, 8, 8)}
    slow = {short: rounds(20, 10, 10, 10, 10, 10), long: rounds(20, 10, 10, 10, 10, 20)}
    assert leaders({"slow": slow, "fast": fast}) == ["fast"]
    assert leaders({"slow": slow, "again": slow}) == ["slow", "again"]
    assert leaders({"nobody": {short: [], long: []}}) == []


def test_who_leads_at_one_of_the_deciding_shapes_is_not_beaten() -> None:
    def rounds(*milliseconds: float) -> list[Round]:
        return [Round(samples_ns=(int(one * MILLISECOND),)) for one in milliseconds]

    short, long = SHAPES
    leader = {short: rounds(10, 10), long: rounds(40, 40)}
    assert beaten({"a": leader, "b": {short: rounds(9, 9), long: rounds(80, 80)}}) == {}
    assert beaten({"a": leader, "b": {short: rounds(20, 11), long: rounds(80, 80)}}) == {}, "one round came near"
    assert set(beaten({"a": leader, "b": {short: rounds(20, 20), long: rounds(80, 80)}})) == {"b"}
    assert beaten({"a": {short: [], long: []}}) == {}, "nobody has run yet"


def test_the_costliest_give_way_first() -> None:
    a, b, c = (Shape(batch=1, sequence=n) for n in (1, 2, 3))
    assert affordable({a: 5.0, b: 1.0, c: 2.0}, 4.0) == (b, c)
    assert affordable({a: 5.0, b: 1.0, c: 2.0}, 8.0) == (a, b, c)
    assert affordable({a: 5.0, b: 1.0}, 0.5) == ()


def test_impossible_requests_are_refused(artifact: Artifact) -> None:
    with pytest.raises(UsageError, match="distinct names"):
        measure(entries(artifact, "a", "a"), SHAPES, threads=1)
    with pytest.raises(UsageError, match="minimum rounds"):
        Effort(rounds=1, minimum_rounds=2)


class Disturbed(FakeTiming):
    """Its turns wait for a CPU, or find the CPU slower, as the script says; after the script it is left alone."""

    script: tuple[tuple[float, int], ...] = ()

    def measure(self, *arguments: Any, **settings: Any) -> Round:
        turn = super().measure(*arguments, **settings)
        delayed, yardstick_ns = self.script[len(self.turns) - 1] if len(self.turns) <= len(self.script) else (0.0, 100)
        return turn.model_copy(update={"delayed": delayed, "yardstick_ns": yardstick_ns})


def disturbed(artifact: Artifact, *script: tuple[float, int]) -> tuple[Measured, Disturbed]:
    clock = Clock()
    contender = Disturbed(clock, median_ms=1.0, seed=1)
    contender.script = script
    effort = EFFORT.model_copy(update={"delay_limit": 0.05})
    return race(artifact, {"a": contender}, clock, effort), contender


def test_a_turn_that_waited_for_a_cpu_is_repeated_and_only_the_repeat_counts(artifact: Artifact) -> None:
    found, contender = disturbed(artifact, (0.0, 100), (0.4, 100), (0.4, 100))
    assert [len(m.rounds) for m in found.measurements] == [5, 5] and not found.busy
    assert all(turn.delayed == 0.0 for m in found.measurements for turn in m.rounds)
    assert len(contender.turns) == 5 * len(SHAPES) + 2


def test_a_machine_that_delays_every_turn_gives_no_measurement_and_ends_soon(artifact: Artifact) -> None:
    found, contender = disturbed(artifact, *[(0.4, 100)] * 500)
    assert found.busy and found.measurements == () and found.delayed == 0.4
    assert len(contender.turns) == EFFORT.void_rounds * (1 + EFFORT.repeats)
    assert found.outcome("a").failure is None


def test_a_cpu_with_two_speeds_is_measured_after_a_bounded_number_of_repeats(artifact: Artifact) -> None:
    found, contender = disturbed(artifact, (0.0, 100), *[(0.0, 150)] * 500)
    assert not found.busy and [len(m.rounds) for m in found.measurements] == [5, 5]
    assert len(contender.turns) == 5 * len(SHAPES) + len(SHAPES), "as many repeats as one round has turns"


def test_real_engines_are_timed_in_processes_of_their_own(artifact: Artifact, tmp_path: Path) -> None:
    alone = RaceEntry("alone", tiny_artifact(tmp_path, backend="openvino"), rows="alone")
    effort = Effort(rounds=1, minimum_rounds=1, minimum_samples=3, minimum_time_s=0.0, warmup_time_s=0.0)
    found = measure([RaceEntry("ort", artifact), alone], SHAPES, threads=1, effort=effort)
    assert [outcome.failure for outcome in found.outcomes] == [None, None]
    assert all(outcome.peak_memory_bytes and outcome.load_s is not None for outcome in found.outcomes)
    assert {(m.candidate, str(m.shape), len(m.samples_ns)) for m in found.measurements} == {
        (name, str(shape), 3) for name in ("ort", "alone") for shape in SHAPES
    }
    assert Measured.model_validate_json(found.model_dump_json()) == found
