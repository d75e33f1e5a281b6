"""Scenarios in this machine's own processes, on the tiny encoder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.benchmarks.fakes import MILLISECOND, Clock
from tests.benchmarks.scenario_worlds import scenario_results
from tests.serving.worlds import TEXTS
from tests.tiny import tiny_artifact
from trimaran.benchmarks.measure.energy import EnergyCounter, find_counter
from trimaran.benchmarks.measure.runner import RaceEntry
from trimaran.benchmarks.scenarios import results
from trimaran.benchmarks.scenarios.finals import final, padding_share
from trimaran.benchmarks.scenarios.footprint import distance, run_footprint
from trimaran.benchmarks.scenarios.in_process import Probes, run_in_process
from trimaran.benchmarks.scenarios.settings import (
    AnyScenarioSettings,
    ColdStartSettings,
    EnergySettings,
    MemorySettings,
    MixedLengthsSettings,
    OfflineSettings,
    ShapeGridSettings,
    SingleStreamSettings,
    SizeSettings,
    SuiteUnit,
)
from trimaran.benchmarks.scenarios.time_parts import time_splits
from trimaran.core.corpus import encoder_of
from trimaran.judging.probe_texts import TextRuns

LONG = "the cat sat " * 30


@pytest.fixture(scope="module")
def entries(tmp_path_factory: pytest.TempPathFactory) -> list[RaceEntry]:
    root = tmp_path_factory.mktemp("store")
    return [
        RaceEntry("ort", tiny_artifact(root), rows="padded"),
        RaceEntry("ov", tiny_artifact(root, backend="openvino"), rows="alone"),
    ]


@pytest.fixture(scope="module")
def probes() -> Iterator[Probes]:
    with Probes((*TEXTS, LONG), source="seven and a long one", threads=1, cores=()) as opened:
        yield opened


def both(
    asked: AnyScenarioSettings, at: results.At, entries: list[RaceEntry], probes: Probes
) -> list[results.ScenarioResult]:
    found = run_in_process(SuiteUnit(asked=asked, at=at), entries, probes)
    assert [result.candidate for result in found] == ["ort", "ov"]
    assert [result.cut for result in found] == [None, None]
    return found


def test_the_same_texts_are_streamed_as_tensors_and_from_the_text_on(entries: list[RaceEntry], probes: Probes) -> None:
    asked = SingleStreamSettings(scenario="single-stream", samples=10, time_s=0.0, rounds=2)
    tensors, piped = (both(asked, at, entries, probes) for at in ("engine", "pipeline"))
    for one, other in zip(tensors, piped, strict=True):
        assert isinstance(one, results.SingleStream) and isinstance(other, results.SingleStream)
        assert one.texts == other.texts and one.texts is not None
        assert (one.texts.n, one.texts.truncated, one.texts.longest) == (8, 1, 92), "92 tokens, the profile takes 16"
        assert [len(turn.samples_ns) for turn in other.rounds] == [16, 16], "whole passes"
        parts = [tokenise + compute for tokenise, compute in zip(*other.parts_ns.values(), strict=True)]
        assert parts == [sample for turn in other.rounds for sample in turn.samples_ns]
        assert one.parts_ns == {}


def test_mixed_lengths_count_real_tokens_and_what_padding_adds(entries: list[RaceEntry], probes: Probes) -> None:
    padded, alone = both(MixedLengthsSettings(scenario="mixed-lengths", batch=4, rounds=2), "pipeline", entries, probes)
    assert isinstance(padded, results.MixedLengths) and isinstance(alone, results.MixedLengths)
    assert padded.texts is not None
    assert [sum(turn.tokens) for turn in padded.rounds] == [padded.texts.tokens] * 2
    assert padding_share(alone) == 0.0, "a row that runs by itself is not padded"
    assert 0.0 <= padding_share(padded) < 0.2


def test_offline_runs_everything_at_once(entries: list[RaceEntry], probes: Probes) -> None:
    for result in both(OfflineSettings(scenario="offline", rounds=2), "pipeline", entries, probes):
        assert isinstance(result, results.Offline)
        assert [run.texts for run in result.passes] == [8, 8]


def test_a_grid_measures_the_shapes_that_the_engine_was_made_for(entries: list[RaceEntry], probes: Probes) -> None:
    asked = ShapeGridSettings(scenario="shape-grid", batches=(1, 4, 64), sequences=(8, 16, 512), time_s=0.0, rounds=1)
    for result in both(asked, "engine", entries, probes):
        assert isinstance(result, results.ShapeGrid)
        assert [str(cell.shape) for cell in result.cells] == ["1x8", "1x16", "4x8", "4x16"]


def test_a_stream_that_never_reaches_its_samples_is_cut_and_keeps_what_it_has(
    entries: list[RaceEntry], probes: Probes
) -> None:
    asked = SingleStreamSettings(scenario="single-stream", samples=10**9, time_s=0.0, rounds=1, limit_s=0.2)
    found = run_in_process(SuiteUnit(asked=asked, at="engine"), entries, probes)
    assert all(result.cut and "never reached its samples" in result.cut for result in found)
    assert all(final(result) is not None for result in found)


def test_a_contender_that_cannot_be_opened_says_why_and_the_other_goes_on(
    entries: list[RaceEntry], tmp_path: Path
) -> None:
    gone = RaceEntry("gone", entries[0].artifact.model_copy().at(tmp_path / "gone"))
    with Probes(TEXTS, source="seven", threads=1, cores=()) as probes:
        asked = OfflineSettings(scenario="offline", rounds=1)
        broken, whole = run_in_process(SuiteUnit(asked=asked, at="pipeline"), [gone, entries[0]], probes)
    assert broken.cut and "is not an artifact" in broken.cut
    assert whole.cut is None


def test_a_cold_start_ends_at_the_first_correct_answer(entries: list[RaceEntry], probes: Probes) -> None:
    unit = SuiteUnit(asked=ColdStartSettings(scenario="cold-start", starts=1), at="pipeline")
    for result in run_footprint(unit, entries[:1], probes):
        assert isinstance(result, results.ColdStart) and result.cut is None
        (start,) = result.starts
        assert start.correct and start.distance <= 1e-6
        assert sum(start.parts_ns.values()) == start.elapsed_ns


def test_another_answer_is_not_a_correct_one() -> None:
    import numpy as np

    wanted = {"embedding": np.array([[1.0, 2.0]])}
    assert distance(wanted, {"embedding": np.array([[1.0, 2.0]])}) == 0.0
    assert distance(wanted, {"embedding": np.array([[1.0, 2.1]])}) > 0.01
    assert distance(wanted, {"embedding": np.array([[1.0]])}) == float("inf")


def test_memory_and_size_are_those_of_the_engine(entries: list[RaceEntry], probes: Probes) -> None:
    (memory,) = run_footprint(SuiteUnit(asked=MemorySettings(scenario="memory"), at="pipeline"), entries[:1], probes)
    assert isinstance(memory, results.Memory) and memory.cut is None
    assert memory.before_open_bytes and memory.after_open_bytes
    assert memory.before_open_bytes < memory.after_open_bytes <= memory.peak_bytes
    (size,) = run_footprint(SuiteUnit(asked=SizeSettings(scenario="size"), at="engine"), entries[:1], probes)
    assert isinstance(size, results.SizeOnDisk)
    assert size.files == {"model.onnx": (entries[0].artifact.directory / "model.onnx").stat().st_size}


def test_energy_is_measured_or_says_why_not(entries: list[RaceEntry], probes: Probes) -> None:
    (found,) = run_footprint(
        SuiteUnit(asked=EnergySettings(scenario="energy", rounds=1), at="pipeline"), entries[:1], probes
    )
    assert isinstance(found, results.Energy)
    assert bool(found.passes) != bool(found.unavailable)


def test_energy_counters_are_found_summed_and_turn_over(tmp_path: Path) -> None:
    assert "does not exist" in str(find_counter(tmp_path / "none"))
    assert "no package zone" in str(find_counter(tmp_path))
    for number in (0, 1):
        zone = tmp_path / f"intel-rapl:{number}"
        zone.mkdir()
        (zone / "name").write_text(f"package-{number}\n")
        (zone / "energy_uj").write_text("900\n")
        (zone / "max_energy_range_uj").write_text("1000\n")
    counter = find_counter(tmp_path)
    assert isinstance(counter, EnergyCounter)
    before = counter.read_uj()
    (tmp_path / "intel-rapl:1" / "energy_uj").write_text("100\n")
    assert counter.joules_between(before, counter.read_uj()) == pytest.approx(200e-6)


def test_a_stream_on_a_clock_turned_by_hand(entries: list[RaceEntry]) -> None:
    clock = Clock()

    def infer(inputs: object) -> dict[str, object]:
        clock.now_ns += 3 * MILLISECOND
        return {}

    runs = TextRuns(
        infer,  # type: ignore[arg-type]
        encoder_of(entries[0].artifact),
        list(TEXTS),
        rows="alone",
        maximum_batch=4,
        clock=clock,
    )
    found = runs.stream("engine", minimum_samples=1, minimum_time_s=0.03, warmup_samples=2, limit_s=1.0)
    assert found["warmup_ns"] == [3 * MILLISECOND] * 2
    assert found["samples_ns"] == [3 * MILLISECOND] * 14, "30 ms are reached in the second pass, which is finished"
    assert found["enough"]


def test_the_parts_of_a_text_add_up_to_what_its_caller_waits() -> None:
    splits = time_splits(scenario_results())
    assert [split.wire for split in splits] == ["grpc", "http"]
    for split in splits:
        assert sum(part.mean_ns for part in split.parts) == pytest.approx(split.total_ns)
        assert [part.name for part in split.parts] == ["tokenise", "compute", "queue", "stage", "tensors", "wire"]
    in_process = [result for result in scenario_results() if result.at != "served"]
    (alone,) = time_splits(in_process)
    assert alone.wire is None and [part.name for part in alone.parts] == ["tokenise", "compute"]
