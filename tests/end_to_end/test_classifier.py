"""A real fine-tuned classifier through the whole line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.commands import trimaran_json
from tests.end_to_end.conftest import World
from trimaran.benchmarks.report.report_files import read_report
from trimaran.core.corpus import readable_texts, shipped_texts
from trimaran.core.proof_effort import some_of_each_kind

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
NAMES = ("Mary", "John", "Alexander", "Isabella", "Tuesday", "a house by the sea")


def test_labels_and_scores_are_those_of_eager(classifier: World, classifier_folder: object) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    running = trimaran_json("serve", classifier.repository, "--free-ports", "--detach", home=classifier.home)
    try:
        url = f"127.0.0.1:{running['grpc_port']}"
        said = trimaran_json("query", "gender", *NAMES, "--url", url, home=classifier.home)
    finally:
        trimaran_json("stop", classifier.repository, home=classifier.home)
    model = AutoModelForSequenceClassification.from_pretrained(classifier_folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(classifier_folder)
    for text, answer in zip(NAMES, said["answers"], strict=True):
        with torch.inference_mode():
            eager = model(**tokenizer(text, return_tensors="pt")).logits.softmax(-1)[0].numpy()
        best, score = answer[0]
        assert best == model.config.id2label[int(eager.argmax())]
        assert score == pytest.approx(float(eager.max()), abs=0.02)
        assert np.isclose(sum(score for _, score in answer), 1.0, atol=1e-5)


def test_what_is_deployed_keeps_the_labels_and_what_does_not_is_rejected(
    classifier: World, classifier_folder: Path
) -> None:
    readable = readable_texts(shipped_texts("judging"), classifier_folder / "tokenizer.json")
    judging = some_of_each_kind(readable, 24) if classifier.quick else readable
    assert len(judging) > (600 if classifier.quick else 1500)
    rows = {row["name"]: row for row in classifier.said["candidates"]}
    assert rows[classifier.said["winner"]]["quality"]["label_agreement"] >= 0.995
    for row in rows.values():
        assert row["quality"]["n"] == len(judging)
        kept = row["quality"]["label_agreement"] >= 0.995 and row["quality"]["mean_probability_change"] <= 0.005
        kept = kept and row["quality"]["tail_probability_change"] <= 0.02
        assert kept or row["verdict"] == "rejected"
        assert (row["verdict"] == "rejected") == (not all(gate["holds"] for gate in row["quality"]["gates"]))


def test_int8_keeps_the_labels_with_some_layers_in_float(classifier: World) -> None:
    """The search goes on until labels it has not seen will keep, too; no layer too many, and not all of them."""
    report = read_report(classifier.folder / classifier.said["report"]["json"])
    row = next(row for row in report.candidates if row.name == "onnxruntime-int8-static")
    assert row.verdict in ("chosen", "passed"), row.reason
    assert row.quality is not None and row.sensitivity is not None
    assert row.quality.metrics["label_agreement"] >= 0.995
    assert row.quality.metrics["mean_probability_change"] <= 0.005
    assert row.quality.metrics["tail_probability_change"] <= 0.02
    assert row.sensitivity.stopped == "gates keep"
    kept = [layer.kept for layer in row.sensitivity.layers]
    assert 6 <= kept.count("int8") < len(kept) == 24
    assert row.sensitivity.texts_digest != row.quality.texts
