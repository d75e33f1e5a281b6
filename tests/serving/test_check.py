"""The last proof before publishing holds what is served to the task's gates."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.serving.worlds import TEXTS, by_hand, logits_by_hand
from tests.tiny import tiny_artifact
from trimaran.errors import QualityError
from trimaran.model_repository.layout import lay_out
from trimaran.serving.check import serve_and_verify
from trimaran.tasks import Gate, gates_for

pytestmark = pytest.mark.usefixtures("triton")


def test_served_classes_keep_the_strictest_gates(tmp_path: Path) -> None:
    artifact = tiny_artifact(tmp_path / "s", task="text-classification", backend="openvino")
    lay_out(artifact, repository=tmp_path / "r", name="m", rows="alone", threads=1)
    gates = gates_for("text-classification", "exact", {})
    answers = {"logits": logits_by_hand(TEXTS)}
    metrics = serve_and_verify(tmp_path / "r", "m", "text-classification", TEXTS, answers, gates=gates)
    assert metrics["label_agreement"] == 1.0
    assert metrics["batch_change"] <= 1e-5


def test_a_gate_that_breaks_on_the_wire_is_named_with_its_number(tmp_path: Path) -> None:
    lay_out(tiny_artifact(tmp_path / "s"), repository=tmp_path / "r", name="m", rows="padded", threads=1)
    wrong = {"embedding": by_hand(TEXTS)[::-1].copy()}
    gates = (Gate("mean_cosine_distance", "<=", 1e-3), Gate("batch_change", "<=", 1e-5))
    with pytest.raises(QualityError, match=r"not what was proven: mean_cosine_distance .*, wanted <= 0\.001"):
        serve_and_verify(tmp_path / "r", "m", "embedding", TEXTS, wrong, gates=gates)
