"""The last proof before publishing holds what is served to its golden bundle."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.serving.worlds import TEXTS, by_hand, logits_by_hand
from tests.tiny import LABELS, tiny_artifact
from trimaran.core.errors import QualityError
from trimaran.core.tasks import Gate, gates_for
from trimaran.core.tasks.task import WireTensors
from trimaran.judging.golden import Golden, make_golden
from trimaran.model_repository.layout import lay_out
from trimaran.runtime.text import softmax
from trimaran.serving.triton.golden_check import serve_and_verify

ROWS = [{"TEXT": text} for text in TEXTS]


def bundle(task: str, numbers: str, wanted: WireTensors, proven: WireTensors, gates: tuple[Gate, ...]) -> Golden:
    return make_golden(
        task=task, model="tiny", reference="", numbers=numbers, rows=ROWS, wanted=wanted, proven=proven, gates=gates
    )


@pytest.mark.usefixtures("triton")
def test_served_classes_keep_the_strictest_gates(tmp_path: Path) -> None:
    artifact = tiny_artifact(tmp_path / "s", task="text-classification", backend="openvino")
    lay_out(artifact, repository=tmp_path / "r", name="m", rows="alone", threads=1)
    scores = softmax(logits_by_hand(TEXTS))
    best_first = np.argsort(-scores, axis=-1, kind="stable")
    names = np.asarray([label.encode() for label in LABELS], dtype=np.object_)[best_first]
    answers = {"LABELS": names, "SCORES": np.take_along_axis(scores, best_first, axis=-1)}
    gates = gates_for("text-classification", "exact", {})
    found = serve_and_verify(tmp_path / "r", "m", bundle("text-classification", "logits", answers, answers, gates))
    assert found.metrics["label_agreement"] == 1.0
    assert found.metrics["batch_change"] <= 1e-5


@pytest.mark.usefixtures("triton")
def test_a_limit_that_breaks_on_the_wire_is_named_with_its_number(tmp_path: Path) -> None:
    lay_out(tiny_artifact(tmp_path / "s"), repository=tmp_path / "r", name="m", rows="padded", threads=1)
    wrong = {"EMBEDDING": by_hand(TEXTS)[::-1].copy()}
    gates = (Gate("mean_cosine_distance", "<=", 1e-3), Gate("batch_change", "<=", 1e-5))
    with pytest.raises(QualityError, match=r"not what was proven: mean_cosine_distance .*, wanted <= 0\.001"):
        serve_and_verify(tmp_path / "r", "m", bundle("embedding", "embedding", wrong, wrong, gates))
