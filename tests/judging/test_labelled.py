from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.tiny import LABELS, tiny_artifact
from trimaran.core.errors import UsageError
from trimaran.judging.labelled import LabelledData, read_labelled

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
            "labels that the model has not, such as 'angry'",
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


def test_a_drop_counts_by_the_lower_end_of_its_paired_interval(tmp_path: Path) -> None:
    artifact = tiny_artifact(tmp_path, task="text-classification")
    gold = GENERATOR.integers(3, size=2000)
    data = LabelledData("accuracy", tuple(map(str, range(2000))), tuple(LABELS[index] for index in gold))
    eager = {"logits": np.eye(3, dtype=np.float32)[gold] * 4}
    same = data.score(artifact, eager, eager)
    assert (same.eager, same.value, same.low_points) == (1.0, 1.0, 0.0)
    assert same.check().holds
    worse = {"logits": eager["logits"].copy()}
    worse["logits"][:3] *= -1
    lost = data.score(artifact, eager, worse)
    assert lost.change_points == pytest.approx(-0.15)
    assert lost.low_points < lost.change_points
    assert not lost.check().holds


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
