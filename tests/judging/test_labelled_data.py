"""The user's own labelled data through the whole of `trimaran quantize`: kept within a tenth of a point, or refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.commands import trimaran_json_here
from tests.quantize.tensorrt.engines import World
from trimaran.benchmarks.report.report_files import read_report
from trimaran.cli import main
from trimaran.core.artifact import Artifact
from trimaran.core.backends import open_session
from trimaran.core.corpus import encoder_of, shipped_pairs, shipped_texts
from trimaran.core.distances import Outputs, label_probabilities, unit
from trimaran.judging.labelled import LabelledData
from trimaran.runtime.text import Text, infer_rows

pytestmark = pytest.mark.usefixtures("workers_here")
TEXTS = shipped_texts("calibration")[:48]
Columns = tuple[tuple[str, ...], list[tuple[str, ...]]]


def answers(artifact: Artifact, texts: list[Text]) -> Outputs:
    encoder = encoder_of(artifact)
    with open_session(artifact, threads=1) as session:
        return infer_rows(session.infer, encoder, encoder.rows(texts), policy="alone", maximum_batch=1)


def scored_pairs(artifact: Artifact) -> Columns:
    """As in STS-B: scores that follow the similarities; here only those of pairs that are clearly alike or not."""
    vectors = unit(answers(artifact, list(TEXTS))["embedding"])
    pairs = [(a, b) for a in range(0, 48, 2) for b in (a + 1, (a + 7) % 48, (a + 13) % 48)]
    order = np.argsort([float(vectors[a] @ vectors[b]) for a, b in pairs])
    # Without the middle third, so that nothing lies near the border between the two scores.
    kept = [(order[: len(order) // 3], "0.0"), (order[-(len(order) // 3) :], "5.0")]
    return ("sentence1", "sentence2", "score"), [
        (TEXTS[pairs[place][0]], TEXTS[pairs[place][1]], score) for places, score in kept for place in places
    ]


def easily_moved(artifact: Artifact) -> Columns:
    """Scores that are the similarities themselves, of pairs so nearly alike that any INT8 changes their order.

    Few pairs, close together: INT8 loses several points of correlation then, and the limit is a tenth of a point.
    """
    vectors = unit(answers(artifact, list(TEXTS))["embedding"])
    pairs = sorted((float(vectors[a] @ vectors[b]), a, b) for a in range(48) for b in range(a))
    return ("sentence1", "sentence2", "score"), [(TEXTS[a], TEXTS[b], str(score)) for score, a, b in pairs[540:565]]


def labelled_texts(artifact: Artifact) -> Columns:
    """The graph's own labels, of the texts that are not on the border."""
    found = label_probabilities({"logits": answers(artifact, list(TEXTS))["logits"]})
    best = np.sort(found, axis=-1)
    sure = np.argsort(best[:, -2] - best[:, -1], kind="stable")[:24]
    return ("text", "label"), [(TEXTS[place], artifact.labels[int(found[place].argmax())]) for place in sure]


def answered_questions(artifact: Artifact) -> Columns:
    """The graph's own spans where no other comes near, as `exact-match` reads them; a quarter has another answer."""
    pairs = list(shipped_pairs("calibration"))[:96]
    texts: list[Text] = [(question, context) for context, question in pairs]
    found, encoder = answers(artifact, texts), encoder_of(artifact)
    items = []
    for index, (encoding, (context, question)) in enumerate(zip(encoder.encodings(texts), pairs, strict=True)):
        inside = [place for place, part in enumerate(encoding.sequence_ids) if part == 1]
        start, end = (found[name][index].astype(np.float64) for name in ("start_logits", "end_logits"))
        spans = sorted(
            ((start[a] + end[b], a, b) for a in inside for b in inside if 0 <= b - a < 30), reverse=True
        )  # fmt: skip
        (best, first, last), (second, _, _) = spans[:2]
        said = context[encoding.offsets[first][0] : encoding.offsets[last][1]]
        items.append((best - second, context, question, said))
    clear = sorted(items, reverse=True)[:24]
    return ("context", "question", "answer"), [
        (context, question, said if index % 4 else "something else")
        for index, (_, context, question, said) in enumerate(clear)
    ]


def written(path: Path, columns: Columns) -> Path:
    header, rows = columns
    path.write_text("\n".join(json.dumps(dict(zip(header, row, strict=True))) for row in rows), encoding="utf-8")
    return path


CASES: dict[str, tuple[str, str, Callable[[Artifact], Columns]]] = {
    "spearman": ("bert", "embedding", scored_pairs),
    "accuracy": ("distilbert", "text-classification", labelled_texts),
    "f1": ("distilbert", "text-classification", labelled_texts),
    "exact-match": ("bert", "question-answering", answered_questions),
}


def quantised(world: World, artifact: Artifact, data: Path, metric: str, *more: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(
            [
                "quantize", str(artifact.directory), "--to", "openvino-int8-weights", "--data", str(data),
                "--metric", metric, "--store", str(world.store.root), "--threads", "1", "--json", *more,
            ]
        )  # fmt: skip
    return int(ended.value.code or 0)


@pytest.mark.parametrize("metric", CASES)
def test_int8_that_keeps_the_users_metric_is_made(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str], metric: str
) -> None:
    family, task, columns = CASES[metric]
    artifact = world.exported(family, task)
    code = quantised(world, artifact, written(tmp_path / "data.jsonl", columns(artifact)), metric)
    said = capsys.readouterr()
    assert code == 0, said.err
    assert f"data_{metric}_change_low_points" in said.err
    assert world.store.open(json.loads(said.out)["artifact"]).precision == "int8-weights"


def test_int8_that_loses_more_than_a_tenth_of_a_point_is_refused_and_says_where_it_is(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    artifact = world.exported("bert", "embedding")
    data = written(tmp_path / "data.jsonl", easily_moved(artifact))
    assert quantised(world, artifact, data, "spearman") == 4
    said = capsys.readouterr().err
    assert "openvino-int8-weights loses too much on" in said and "It was made all the same" in said


def test_exact_match_counts_spans_as_texts(world: World) -> None:
    """Spaces and case apart; a span one token longer is another answer."""
    artifact = world.exported("bert", "question-answering")
    context, question = "the cat sat on the mat", "who sat"
    data = LabelledData("exact-match", ((question, context),) * 2, ("The  CAT", "cat"))
    encoding = encoder_of(artifact).encodings([(question, context)])[0]
    words = [
        context[a:b] if part == 1 else "" for part, (a, b) in zip(encoding.sequence_ids, encoding.offsets, strict=True)
    ]
    start = np.full((2, len(words)), -5.0)
    end = start.copy()
    places = [place for place, (a, b) in enumerate(encoding.offsets) if encoding.sequence_ids[place] == 1 and a < 7]
    start[:, places[0]], end[:, places[-1]] = 5.0, 5.0
    score = data.score(artifact, {"start_logits": start, "end_logits": end}, {"start_logits": start, "end_logits": end})
    assert (score.eager, score.value, score.change_points) == (0.5, 0.5, 0.0)
    other = end.copy()
    other[:, places[-1] + 1] = 9.0
    lost = data.score(
        artifact, {"start_logits": start, "end_logits": end}, {"start_logits": start, "end_logits": other}
    )
    assert lost.value == 0.0 and not lost.check().holds


@pytest.mark.slow
def test_a_deployment_holds_every_candidate_against_the_users_data(world: World, tmp_path: Path) -> None:
    """Pairs that change places easily: what is exact keeps the correlation, INT8 is rejected with its number."""
    graph = world.exported("bert", "embedding")
    data = written(tmp_path / "data.jsonl", easily_moved(graph))
    said = trimaran_json_here(
        "deploy", "-m", world.root / "bert-embedding", "--name", "tiny", "--candidates",
        "onnxruntime-fp32,openvino-int8-weights", "--sequence", 1, 16, 48, "--batch", 1, 2, 4,
        "--data", data, "--metric", "spearman", "--no-serve-check", "--quick",
        home=tmp_path / "home", cwd=tmp_path,
    )  # fmt: skip
    assert said["winner"] == "onnxruntime-fp32"
    report = read_report(tmp_path / said["report"]["json"])
    rows = {row.name: row for row in report.candidates}
    for row in rows.values():
        assert row.quality is not None
        (check,) = (check for check in row.quality.checks if check.name == "data_spearman_change_low_points")
        assert check.limit == -0.1
        assert check.holds == (row.name == "onnxruntime-fp32")
    assert "spearman" in rows["openvino-int8-weights"].reason.lower()
