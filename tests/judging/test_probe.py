from __future__ import annotations

import os

import numpy as np
import pytest

from tests.benchmarks.fakes import Clock
from tests.tiny import tiny_artifact
from trimaran.core.artifact import Artifact
from trimaran.core.isolation import Worker
from trimaran.judging.invariance import CALLS, GROUPINGS, LENGTHS, certificate_groups, fitted, padded_groups
from trimaran.judging.probe import Probe, serving_call, timed_calls
from trimaran.judging.probe_process import ProbeProcess, thread_environment
from trimaran.runtime.text import MOST_PAIRS, STEP, Row

TEXTS = ["the cat sat", "good", ("the dog ran", "bad cat"), "the good cat sat", "bad dog"]


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return tiny_artifact(tmp_path_factory.mktemp("store"))


def rows_of(lengths: list[int]) -> list[Row]:
    return [Row([index + 1] * length, [0] * length) for index, length in enumerate(lengths)]


def test_enough_samples_and_enough_time_are_both_waited_for() -> None:
    clock = Clock()

    def call() -> None:
        clock.now_ns += 100

    by_time = timed_calls(call, minimum_samples=1, minimum_time_s=1e-6, warmup_samples=0, clock=clock)
    assert by_time == {"warmup_ns": [], "samples_ns": [100] * 10}
    by_count = timed_calls(call, minimum_samples=4, minimum_time_s=0.0, warmup_samples=2, clock=clock)
    assert by_count == {"warmup_ns": [100] * 2, "samples_ns": [100] * 4}


def test_rows_that_must_run_alone_are_timed_as_that_many_calls() -> None:
    shapes: list[tuple[int, ...]] = []
    inputs = {"input_ids": np.ones((3, 5), np.int64)}

    def infer(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        shapes.append(batch["input_ids"].shape)
        return {}

    serving_call(infer, inputs, "alone")()
    serving_call(infer, inputs, "equal-length")()
    assert shapes == [(1, 5), (1, 5), (1, 5), (3, 5)]


def test_a_batch_of_long_rows_is_timed_in_as_many_calls_as_a_server_makes() -> None:
    shapes: list[tuple[int, ...]] = []

    def infer(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        shapes.append(batch["input_ids"].shape)
        return {}

    serving_call(infer, {"input_ids": np.ones((6, 2048), np.int64)}, "padded")()
    assert shapes == [(4, 2048), (2, 2048)]


@pytest.mark.parametrize("policy", GROUPINGS)
def test_no_call_of_a_certificate_has_more_rows_than_a_served_one(policy: str) -> None:
    """Eight rows of 8,192 tokens would need 26 GB for the scores of twelve heads."""
    rows = rows_of([5, 9, 4000, 8192, 8190, 1500, 12])
    for group in certificate_groups(rows, policy, size=32, seed=1, maximum=8192):
        width = max(group.length, *(len(row.ids) for row in group.rows))
        assert len(group.rows) == 1 or len(group.rows) * width**2 <= MOST_PAIRS


def test_padded_groups_judge_every_text_once_in_full_batches() -> None:
    everything = list(padded_groups(rows_of([3, 9, 4, 7, 5, 6, 2]), size=4, seed=1, maximum=32))
    groups = [group for group in everything if group.length < 32]
    assert sorted(index for group in groups for index in group.indices) == list(range(7))
    assert [len(group.rows) for group in groups] == [4, 4]
    assert {group.length for group in groups} == {max(len(row.ids) for row in group.rows) for group in groups}
    assert everything[-1].length == 32, "some texts are padded to the maximum"
    assert any(len({len(row.ids) for row in group.rows}) > 1 for group in groups)


def test_equal_length_groups_hold_one_length_each_and_are_full() -> None:
    rows = rows_of([3, 9, 3, 7])
    groups = list(GROUPINGS["equal-length"](rows, size=4, seed=1, maximum=32))
    assert [len(group.rows) for group in groups] == [4, 4, 4]
    for group in groups:
        assert len({len(row.ids) for row in group.rows}) == 1
        assert [rows[index] for index in group.indices] == group.rows[: len(group.indices)]


def test_rounded_groups_hold_all_lengths_of_one_width() -> None:
    rows = rows_of([3, STEP, STEP + 1, 2 * STEP, 2 * STEP + 1])
    groups = list(GROUPINGS["rounded"](rows, size=STEP + 2, seed=1, maximum=2 * STEP + 1))
    assert [group.length for group in groups] == [STEP, 2 * STEP, 3 * STEP]
    assert [group.indices for group in groups] == [[0, 1], [2, 3], [4]]
    for group in groups[:2]:
        lengths = {len(row.ids) for row in group.rows}
        assert lengths == set(range(group.length - STEP + 1, group.length + 1))
    assert {len(row.ids) for row in groups[2].rows} == {2 * STEP + 1}, "none is longer than the profile allows"


def test_many_lengths_are_sampled_from_the_shortest_to_the_longest() -> None:
    groups = list(GROUPINGS["equal-length"](rows_of(list(range(1, 101))), size=2, seed=1, maximum=128))
    lengths = [len(group.rows[0].ids) for group in groups]
    assert len(lengths) == LENGTHS
    assert (lengths[0], lengths[-1]) == (1, 100)


@pytest.mark.parametrize("policy", GROUPINGS)
def test_a_certificate_has_sixty_calls_of_many_sizes_and_widths(policy: str) -> None:
    rows = rows_of([3 + index * 7 % 120 for index in range(200)])
    groups = list(certificate_groups(rows, policy, size=32, seed=1, maximum=128))
    assert len({(tuple(group.indices), len(group.rows), group.length) for group in groups}) >= CALLS
    sizes, widths = {len(group.rows) for group in groups}, {group.length for group in groups}
    assert {2, 3, 4, 32} <= sizes
    assert min(widths) < 20 and max(widths) > 110 and len(widths) >= 4
    for group in groups:
        assert group.rows[: len(group.indices)] == [rows[index] for index in group.indices]
        assert all(len(row.ids) <= group.length for row in group.rows)


def test_a_neighbour_is_cut_or_repeated_to_the_length() -> None:
    row = Row([1, 2, 3], [0, 0, 1])
    assert fitted(row, 2) == Row([1, 2], [0, 0])
    assert fitted(row, 5) == Row([1, 2, 3, 1, 2], [0, 0, 1, 0, 0])


def test_answers_come_in_the_order_of_the_texts_whatever_the_policy(artifact: Artifact) -> None:
    with ProbeProcess(artifact, threads=1, deadline_s=60) as probe:
        alone = probe.answers(TEXTS, "alone")["embedding"]
        padded = probe.answers(TEXTS, "padded")["embedding"]
        rounded = probe.answers(TEXTS, "rounded")["embedding"]
        lone = probe.answers(TEXTS, "rounded", alone=True)["embedding"]
        indices, among = probe.among_neighbours(TEXTS, "padded", 3)
        probe.rest()
        assert probe.peak_memory_bytes > 1_000_000
    assert alone.shape == (5, 8)
    for found in (padded, rounded, lone):
        np.testing.assert_allclose(found, alone, atol=1e-6)
    assert sorted(set(indices)) == list(range(5))
    np.testing.assert_allclose(among["embedding"], alone[indices], atol=1e-6)


def test_probes_in_one_child_answer_one_after_the_other_and_leave_it_open(artifact: Artifact) -> None:
    with Worker() as worker:
        process = worker.call(os.getpid, 60.0)
        for _ in range(2):
            with ProbeProcess(artifact, threads=1, deadline_s=60, worker=worker) as probe:
                assert probe.answers(TEXTS, "alone")["embedding"].shape == (5, 8)
        assert worker.call(os.getpid, 60.0) == process


def test_random_inputs_are_full_and_never_the_padding_id(artifact: Artifact) -> None:
    probe = Probe(str(artifact.directory), threads=1)
    inputs = probe._random_inputs(4, 16, "padded")
    assert inputs["input_ids"].shape == (4, 16)
    assert (inputs["attention_mask"] == 1).all()
    assert (inputs["input_ids"] != artifact.tokenizer.pad_id).all()
    rounded = probe._random_inputs(4, STEP + 1, "rounded")
    assert rounded["attention_mask"].sum(axis=1).tolist() == [STEP + 1] * 4
    assert rounded["input_ids"].shape == (4, 2 * STEP), "what is timed is padded as it is served"
    assert inputs["input_ids"].max() < 11


def test_every_library_is_told_the_same_threads() -> None:
    told = thread_environment(3)
    assert {told[name] for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")} == {"3"}
