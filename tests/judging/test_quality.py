from __future__ import annotations

import contextlib
from collections.abc import Sequence

import numpy as np
import pytest

from tests.tiny import LABELS, tiny_artifact
from trimaran.core.artifact import Artifact
from trimaran.core.choices import Rows
from trimaran.core.errors import UsageError
from trimaran.core.metrics import METRICS_VERSION
from trimaran.core.proof_effort import ProofEffort
from trimaran.core.tasks import TAILS, Gate, gates_for
from trimaran.judging.judgement import WIDEST_FIRST, Quality
from trimaran.judging.quality import assess, reference_answers
from trimaran.runtime.text import Text

TEXTS = ["the cat sat", "good", "the dog ran bad", "the good cat sat", "bad dog", "ran", "the the the dog", "sat good"]
GATES = gates_for("embedding", "strict", {})
TOGETHER = WIDEST_FIRST[:-1]


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return tiny_artifact(tmp_path_factory.mktemp("store"))


class FakeAnswering:
    """Answers that move among neighbours by a given amount under each policy; `rounded` may have answers of its own."""

    peak_memory_bytes = 7

    def __init__(self, alone: np.ndarray, moved: dict[Rows, np.ndarray], rounded: np.ndarray | None = None) -> None:
        self._alone, self._moved, self._rounded = alone, moved, alone if rounded is None else rounded

    def answers(self, texts: Sequence[Text], rows: Rows, *, alone: bool) -> dict[str, np.ndarray]:
        assert alone, "how a text is answered by itself is what is judged"
        found = self._rounded if rows == "rounded" else self._alone
        return {"embedding": found[[TEXTS.index(str(text)) for text in texts]]}

    def among_neighbours(
        self, texts: Sequence[Text], rows: Rows, seed: int, effort: ProofEffort | None = None
    ) -> tuple[list[int], dict[str, np.ndarray]]:
        indices = list(range(len(texts)))[::-1]
        return indices, {"embedding": self._moved[rows][indices]}


def judged(
    artifact: Artifact, *, candidate: np.ndarray, moved: dict[Rows, np.ndarray], rounded: np.ndarray | None = None
) -> Quality:
    fake = FakeAnswering(candidate, moved, rounded)
    return assess(
        artifact, {"embedding": VECTORS}, TEXTS, gates=GATES, threads=1, open_probe=lambda: contextlib.nullcontext(fake)
    )


VECTORS = np.random.default_rng(0).standard_normal((len(TEXTS), 6)).astype(np.float32)
OTHERS = np.random.default_rng(1).standard_normal((len(TEXTS), 6)).astype(np.float32)


def test_a_true_engine_keeps_every_gate_and_may_pad(
    artifact: Artifact, tmp_path_factory: pytest.TempPathFactory
) -> None:
    candidate = tiny_artifact(tmp_path_factory.mktemp("other"), backend="openvino")
    answers = reference_answers(artifact, TEXTS, threads=1)
    quality = assess(candidate, answers, TEXTS, gates=GATES, threads=1)
    assert quality.holds
    assert quality.rows == "padded"
    assert set(quality.changes) == {"padded"}, "a narrower policy need not be tried where a wider one keeps"
    assert quality.neighbours == 3, "the profile's largest batch is four"
    assert quality.n == len(TEXTS)
    assert quality.metrics["batch_change"] == quality.changes["padded"] <= 1e-5
    assert quality.peak_memory_bytes > 1_000_000


def test_a_classifier_is_judged_by_its_labels(tmp_path_factory: pytest.TempPathFactory) -> None:
    classifier = tiny_artifact(tmp_path_factory.mktemp("store"), task="text-classification")
    answers = reference_answers(classifier, TEXTS, threads=1)
    assert answers["logits"].shape == (len(TEXTS), len(LABELS))
    gates = gates_for("text-classification", "exact", {})
    quality = assess(classifier, answers, TEXTS, gates=gates, threads=1)
    assert quality.holds
    assert quality.metrics["batch_label_flips"] == 0
    turned = {"logits": -answers["logits"]}
    broken = assess(classifier, turned, TEXTS, gates=gates, threads=1).broken
    assert {check.name for check in broken} == {"label_agreement", "mean_probability_change"}


def test_an_engine_that_padding_disturbs_is_served_with_rows_rounded_to_widths_of_their_own(artifact: Artifact) -> None:
    quality = judged(artifact, candidate=VECTORS, moved={"padded": OTHERS, "rounded": VECTORS})
    assert quality.rows == "rounded"
    assert quality.changes["padded"] > 1e-5
    assert quality.metrics["batch_change"] <= 1e-5
    assert quality.holds


def test_only_a_packed_graph_is_tried_with_packed_rows(artifact: Artifact) -> None:
    moved: dict[Rows, np.ndarray] = {"padded": OTHERS, "packed": VECTORS, "rounded": VECTORS}
    assert judged(artifact, candidate=VECTORS, moved=moved).rows == "rounded"
    graph = artifact.model_copy(update={"details": {**artifact.details, "packed": True}})
    assert judged(graph, candidate=VECTORS, moved=moved).rows == "packed"
    assert judged(graph, candidate=VECTORS, moved={**moved, "packed": OTHERS}).rows == "rounded"


def test_rounded_rows_are_judged_by_their_own_answers(artifact: Artifact) -> None:
    nearly = VECTORS + np.float32(1e-4)
    quality = judged(artifact, candidate=OTHERS, moved={"padded": VECTORS, "rounded": nearly}, rounded=nearly)
    assert quality.rows == "rounded"
    assert 0 < quality.metrics["max_abs_difference"] < 1e-3
    assert quality.holds


def test_an_engine_that_reads_padding_as_text_is_served_with_rows_of_equal_length(artifact: Artifact) -> None:
    """Its rounded answers do not move with neighbours, and are wrong."""
    moved: dict[Rows, np.ndarray] = {"padded": OTHERS, "rounded": OTHERS, "equal-length": VECTORS}
    quality = judged(artifact, candidate=VECTORS, moved=moved, rounded=OTHERS)
    assert quality.rows == "equal-length"
    assert quality.changes["rounded"] <= 1e-5
    assert quality.holds


def test_an_engine_that_any_neighbour_disturbs_is_served_alone(artifact: Artifact) -> None:
    quality = judged(artifact, candidate=VECTORS, moved=dict.fromkeys(TOGETHER, OTHERS))
    assert (quality.rows, quality.metrics["batch_change"]) == ("alone", 0.0)


def test_a_broken_gate_is_a_fact_and_not_an_error(artifact: Artifact) -> None:
    quality = judged(artifact, candidate=OTHERS, moved=dict.fromkeys(TOGETHER, OTHERS))
    assert not quality.holds
    assert {"mean_cosine_distance", "tail_similarity_change"} <= {check.name for check in quality.broken}
    assert {check.verdict for check in quality.broken} == {"broken", "not proven"}


def test_a_candidate_that_only_just_moves_is_not_proven_by_eight_texts(artifact: Artifact) -> None:
    nearly = VECTORS + 0.01 * OTHERS
    quality = judged(artifact, candidate=nearly, moved=dict.fromkeys(TOGETHER, nearly))
    assert not quality.holds
    assert {check.verdict for check in quality.broken} == {"not proven"}
    tail = next(check for check in quality.broken if check.name == "tail_cosine_distance")
    assert (tail.needs, tail.n) == (299, 8)


def test_every_kind_is_told_and_one_that_breaks_a_gate_breaks_the_whole(artifact: Artifact) -> None:
    """Most texts hardly move, so that the mean of all keeps its limit; the last two are of a kind that does not."""
    moved = VECTORS + np.float32(5e-3) * OTHERS
    moved[6:] = VECTORS[6:] + np.float32(0.12) * OTHERS[6:]
    fake = FakeAnswering(moved, dict.fromkeys(TOGETHER, moved))
    gates = [Gate("mean_cosine_distance", "<=", 1.2e-3)]
    quality = assess(
        artifact,
        {"embedding": VECTORS},
        TEXTS,
        gates=gates,
        threads=1,
        open_probe=lambda: contextlib.nullcontext(fake),
        kinds=["headline"] * 6 + ["chat"] * 2,
        judged=4,
    )
    assert [(kind.kind, kind.n, kind.broken) for kind in quality.kinds] == [
        ("headline", 6, ()),
        ("chat", 2, ("mean_cosine_distance",)),
    ]
    assert [(check.kind, check.verdict) for check in quality.broken] == [("chat", "broken"), ("", "not proven")]
    assert [check.limit for check in quality.broken] == pytest.approx([1.25 * 1.2e-3, 1.2e-3]), "as a kind has it"
    assert len(quality.losses["mean_cosine_distance"]) == len(TEXTS)
    assert quality.alpha == 0.05 / 4
    assert quality.metrics_version == METRICS_VERSION
    again = Quality.model_validate_json(quality.model_dump_json())
    assert again == quality


def test_an_engine_that_answers_nan_passes_nothing_and_can_still_be_stored(artifact: Artifact) -> None:
    nothing = np.full_like(VECTORS, np.nan)
    quality = judged(artifact, candidate=nothing, moved=dict.fromkeys(TOGETHER, nothing))
    assert "mean_cosine_distance" in {check.name for check in quality.broken}
    assert quality.rows == "alone"
    again = Quality.model_validate_json(quality.model_dump_json())
    assert again.changes == quality.changes
    assert again.broken == quality.broken


def test_nan_only_when_padded_forbids_padding(artifact: Artifact) -> None:
    nothing = np.full_like(VECTORS, np.nan)
    quality = judged(artifact, candidate=VECTORS, moved={"padded": nothing, "rounded": VECTORS})
    assert quality.rows == "rounded"


def test_without_a_gate_on_it_rows_are_padded(artifact: Artifact) -> None:
    fake = FakeAnswering(VECTORS, dict.fromkeys(TOGETHER, OTHERS))
    quality = assess(
        artifact, {"embedding": VECTORS}, TEXTS, gates=[], threads=1, open_probe=lambda: contextlib.nullcontext(fake)
    )
    assert quality.rows == "padded"


def test_no_texts_are_refused(artifact: Artifact) -> None:
    with pytest.raises(UsageError, match="there are none"):
        reference_answers(artifact, [], threads=1)


def test_too_few_texts_for_a_tail_are_held_by_the_largest_and_it_is_said(artifact: Artifact) -> None:
    one_moved = VECTORS.copy()
    one_moved[2] = OTHERS[2]
    quality = judged(artifact, candidate=one_moved, moved=dict.fromkeys(TOGETHER, one_moved))
    tail = next(check for check in quality.checks if check.name == "tail_cosine_distance")
    assert not tail.holds
    assert tail.observed == pytest.approx(quality.metrics["worst_cosine_distance"])
    assert "the largest change of 8 texts" in str(tail)
    assert "299 texts are needed for 1 %" in str(tail)
    assert not any(check.detail for check in quality.checks if check.name not in TAILS)
