from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.tiny import LABELS, tiny_artifact
from trimaran.core.errors import UsageError
from trimaran.judging.labelled import DataScore, LabelledData, read_labelled

GENERATOR = np.random.default_rng(2)


def written(path: Path, header: str, rows: list[str]) -> Path:
    path.write_text("\n".join([header, *rows] if header else rows), encoding="utf-8")
    return path


def test_pairs_with_scores_are_read_with_and_without_a_header(tmp_path: Path) -> None:
    rows = [f"first {index}\tsecond {index}\t{index / 10}" for index in range(20)]
    named = read_labelled(
        written(tmp_path / "a.tsv", "sentence1\tsentence2\tscore", rows), "spearman", task="embedding", labels=()
    )
    plain = read_labelled(written(tmp_path / "b.tsv", "", rows), "spearman", task="embedding", labels=())
    assert named == plain
    assert named.texts[:1] == ("first 0",) and named.texts[20] == "second 0"
    assert named.gold[3] == "0.3"


@pytest.mark.parametrize(
    ("header", "row", "metric", "task", "words"),
    [
        (
            "sentence1\tlabel",
            "a\t1",
            "spearman",
            "embedding",
            "no column with the second texts: found sentence1, label",
        ),
        (
            "name\tlabel",
            "a\tpositive",
            "accuracy",
            "text-classification",
            "no column with the texts: found name, label",
        ),
        (
            "text\tlabel",
            "a\tangry",
            "accuracy",
            "text-classification",
            "labels that the model does not have, such as 'angry'",
        ),
        ("sentence1\tsentence2\tscore", "a\tb\thigh", "spearman", "embedding", "a score is a number, found 'high'"),
        ("text\tlabel", "a\t1", "accuracy", "embedding", "accuracy cannot be taken of embedding"),
        ("text\tlabel", "a\t1", "bleu", "embedding", "Unknown metric 'bleu'"),
    ],
)
def test_wrong_data_is_refused_in_words(
    tmp_path: Path, header: str, row: str, metric: str, task: str, words: str
) -> None:
    path = written(tmp_path / "a.tsv", header, [row] * 20)
    with pytest.raises(UsageError, match=words):
        read_labelled(path, metric, task=task, labels=LABELS)


def test_a_handful_of_items_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tsv", "text\tlabel", ["a\tpositive"] * 3)
    with pytest.raises(UsageError, match="has 3 items; at least 16"):
        read_labelled(path, "accuracy", task="text-classification", labels=LABELS)


def test_labels_may_be_numbers_or_names(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tsv", "text\tlabel", ["a\tPositive", "b\t0"] * 10)
    data = read_labelled(path, "f1", task="text-classification", labels=LABELS)
    assert data.gold[:2] == ("positive", "negative")


def classified(tmp_path: Path, n: int, *, lost: int = 0, gained: int = 0, metric: str = "accuracy") -> DataScore:
    """Eager is right but for the last items; the candidate loses the first, and gains some of the last."""
    artifact = tiny_artifact(tmp_path, task="text-classification")
    gold = np.arange(n) % 3
    data = LabelledData(metric, tuple(map(str, range(n))), tuple(LABELS[index] for index in gold))
    eager = {"logits": np.eye(3, dtype=np.float32)[gold] * 4}
    right = eager["logits"].copy()
    eager["logits"][-9:] *= -1
    found = {"logits": eager["logits"].copy()}
    found["logits"][:lost] *= -1
    found["logits"][n - gained :] = right[n - gained :]
    return data.score(artifact, eager, found)


@pytest.mark.parametrize("metric", ["accuracy", "f1"])
def test_items_that_nothing_flips_prove_no_more_than_so_many_can(tmp_path: Path, metric: str) -> None:
    few = classified(tmp_path, 16, metric=metric).check()
    assert (few.verdict, few.needs_words) == ("not proven", "needs 3,100 items, has 16")
    assert not classified(tmp_path, 2000, metric=metric).check().holds
    many = classified(tmp_path, 3200, metric=metric)
    assert many.change_points == 0.0 and many.low_points == pytest.approx(-0.0968, abs=1e-4)
    assert many.check().holds


def test_a_drop_counts_by_the_exact_bound_on_items_lost_and_gained(tmp_path: Path) -> None:
    lost = classified(tmp_path, 2000, lost=3)
    assert (lost.lost, lost.gained) == (3, 0)
    assert lost.change_points == pytest.approx(-0.15)
    assert lost.low_points < lost.change_points
    assert lost.check().verdict == "broken"
    both = classified(tmp_path, 2000, lost=3, gained=3)
    assert (both.lost, both.gained, both.change_points) == (3, 3, 0.0)
    assert both.low_points > lost.low_points
    assert both.check().verdict == "not proven"


@pytest.mark.parametrize(("items", "words"), [(16, "needs 299 items, has 16"), (300, "")])
def test_scores_of_a_few_items_that_keep_their_order_prove_nothing(tmp_path: Path, items: int, words: str) -> None:
    """No resample of them shows a loss, which is no bound."""
    artifact = tiny_artifact(tmp_path)
    firsts = GENERATOR.standard_normal((items, 8)).astype(np.float32)
    vectors = np.concatenate([firsts, GENERATOR.standard_normal((items, 8))])
    gold = tuple(map(str, GENERATOR.random(items)))
    data = LabelledData("spearman", ("a",) * (2 * items), gold)
    score = data.score(artifact, {"embedding": vectors}, {"embedding": (1 + 1e-6) * vectors})
    assert score.low_points == pytest.approx(0.0)
    assert (score.check().verdict, score.check().needs_words) == ("not proven" if words else "proven", words)
    exact = data.score(artifact, {"embedding": vectors}, {"embedding": vectors}, alpha=None)
    assert exact.check().verdict == "proven"


def test_similarities_follow_the_scores(tmp_path: Path) -> None:
    artifact = tiny_artifact(tmp_path)
    firsts = GENERATOR.standard_normal((300, 8)).astype(np.float32)
    seconds = firsts + GENERATOR.random((300, 1)).astype(np.float32) * GENERATOR.standard_normal((300, 8))
    near = (firsts * seconds).sum(1) / np.linalg.norm(firsts, axis=1) / np.linalg.norm(seconds, axis=1)
    data = LabelledData("spearman", ("a",) * 600, tuple(map(str, near)))
    eager = {"embedding": np.concatenate([firsts, seconds])}
    score = data.score(artifact, eager, {"embedding": GENERATOR.standard_normal((600, 8))})
    assert score.eager == pytest.approx(1.0)
    assert score.value < 0.3
    assert set(score.figures()) == {
        "data_spearman", "data_spearman_eager", "data_spearman_change_points", "data_spearman_change_low_points",
    }  # fmt: skip
