"""Our eager text path answers as the model's own library does, and a difference names its text, token and cause."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.export import zoo
from tests.export.exported import QUIET, reference_of
from trimaran.core.artifact import Artifact
from trimaran.core.config import DeployConfig
from trimaran.core.errors import QualityError
from trimaran.core.spec import ModelRef
from trimaran.core.store import Store
from trimaran.core.tasks import TASKS
from trimaran.export.library import LibraryCheck, compare_with_library
from trimaran.export.locate import locate
from trimaran.pipeline import library
from trimaran.pipeline.library import compare_library, library_maximum, requests_of, require_same, sentence
from trimaran.pipeline.plan import DeployRun, plan_deployment


def referenced(folder: Path, root: Path, task: str = "auto", **changes: Any) -> tuple[ModelRef, Artifact]:
    ref = locate(str(folder), task_name=task).model_copy(update=changes)
    return ref, reference_of(ref, root, profile=DeployConfig(model=str(folder)).profile_for(ref))


def checked(ref: ModelRef, reference: Artifact) -> LibraryCheck:
    rows, maximum = requests_of(ref, reference), library_maximum(ref, reference)
    return LibraryCheck.model_validate(compare_with_library(str(reference.directory), rows, maximum, 1))


def sentence_folder(
    root: Path, *, limit: int = 48, config: dict[str, Any] | None = None, normalized: bool = False, **settings: Any
) -> Path:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    zoo.saved_model(root / "plain", "roberta", "embedding")
    last = [Normalize()] if normalized else []
    modules = [Transformer(str(root / "plain")), Pooling(32, pooling_mode="cls"), *last]
    model = SentenceTransformer(modules=modules, device="cpu", **settings)
    model.max_seq_length = limit
    model.save(str(root / "sentence"))
    for name, changes in (config or {}).items():
        path = root / "sentence" / name
        path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **changes}), encoding="utf-8")
    return root / "sentence"


@pytest.mark.parametrize("normalized", [False, True])
def test_the_number_of_dimensions_that_a_folder_states_is_the_librarys(tmp_path: Path, normalized: bool) -> None:
    folder = sentence_folder(tmp_path, truncate_dim=8, normalized=normalized)
    ref, reference = referenced(folder, tmp_path)
    assert reference.signature.outputs[0].dims == ("batch", 8)
    check = checked(ref, reference)
    assert (check.difference, check.unable, check.numbers) == ("", "", True)


@pytest.mark.parametrize("task", TASKS)
def test_every_task_answers_as_its_library(tmp_path: Path, task: str) -> None:
    ref, reference = referenced(zoo.saved_model(tmp_path / "model", "bert", task), tmp_path, task)
    check = checked(ref, reference)
    assert (check.difference, check.unable) == ("", "")
    assert check.compared >= 12 and check.library.startswith(("transformers 5", "sentence-transformers"))
    assert check.largest <= 2e-5


@pytest.mark.parametrize("family", ["albert", "xlnet"])
def test_segments_that_the_library_does_not_feed_are_not_fed(tmp_path: Path, family: str) -> None:
    folder = zoo.saved_model(tmp_path / "model", family, "text-classification")
    ref, reference = referenced(folder, tmp_path)
    assert "token_type_ids" in ref.inputs and "token_type_ids" not in reference.tokenizer.inputs
    assert checked(ref, reference).difference == ""
    path = folder / "tokenizer_config.json"
    stated = json.loads(path.read_text(encoding="utf-8"))
    names = ["input_ids", "token_type_ids", "attention_mask"]
    path.write_text(json.dumps({**stated, "model_input_names": names}), encoding="utf-8")
    ref, reference = referenced(folder, tmp_path)
    assert "token_type_ids" in reference.tokenizer.inputs
    assert checked(ref, reference).difference == ""


def test_lower_casing_prompts_and_the_side_that_is_cut_are_the_librarys(tmp_path: Path) -> None:
    folder = sentence_folder(
        tmp_path,
        prompts={"query": "Find This: ", "passage": "Passage: "},
        default_prompt_name="query",
        config={
            "sentence_bert_config.json": {"do_lower_case": True},
            "tokenizer_config.json": {"truncation_side": "left"},
        },
    )
    ref, reference = referenced(folder, tmp_path)
    assert reference.tokenizer.cut_side == "left"
    check = checked(ref, reference)
    assert check.difference == "" and check.compared == 17 + 2 * len(ref.prompts)


@pytest.mark.parametrize(
    ("changes", "cause", "words"),
    [
        ({"default_sequence": 64}, "the maximum length", "(48 tokens there, 64 here)"),
        ({"default_prompt": ""}, "the prompt", "in the library and"),
    ],
)
def test_a_misread_folder_names_text_token_and_cause(
    tmp_path: Path, changes: dict[str, Any], cause: str, words: str
) -> None:
    folder = sentence_folder(tmp_path, prompts={"query": "find: "}, default_prompt_name="query")
    ref, reference = referenced(folder, tmp_path, **changes)
    check = checked(ref, reference)
    assert check.cause == cause and words in check.difference
    assert check.difference.startswith("TEXT 'Türk kahvesi") and "token " in check.difference
    with pytest.raises(QualityError, match=f"The likely cause: {cause}"):
        require_same(check)


def test_a_misread_activation_is_found_by_its_numbers(tmp_path: Path) -> None:
    folder = zoo.saved_model(tmp_path / "model", "bert", "text-classification")
    check = checked(*referenced(folder, tmp_path, activation="sigmoid"))
    assert check.cause == "the activation" and "from the same tokens" in check.difference


@pytest.mark.slow
@pytest.mark.usefixtures("workers_here")
def test_the_stage_asks_once_and_remembers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = sentence_folder(tmp_path)
    plan = plan_deployment(DeployConfig(model=str(folder), threads=1))
    run = DeployRun(plan, Store(tmp_path / "store"), QUIET)
    reference = reference_of(plan.ref, tmp_path, profile=plan.profile)
    said = compare_library(run, reference)
    assert said.startswith("As your library answers: sentence-transformers") and "17 requests" in said
    monkeypatch.setattr(library, "run_in_child", lambda *arguments, **keywords: pytest.fail("asked again"))
    assert compare_library(run, reference) == said


def test_a_library_that_cannot_answer_is_said(tmp_path: Path) -> None:
    check = LibraryCheck(
        library="", compared=0, refused=0, largest=0.0, unable="the library cannot load the folder: no"
    )
    assert sentence(check, None).endswith("eager is the reference.")
