"""bge-m3's three outputs of one pass: as FlagEmbedding's formulas give them, and refused where a head is missing."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.export import zoo
from tests.export.exported import LONG, answering, exported, reference_of
from trimaran.core.artifact import Artifact
from trimaran.core.errors import IntegrityError, UsageError
from trimaran.core.tasks import TASKS
from trimaran.export.library import compare_with_library
from trimaran.export.locate import current_digest, locate
from trimaran.pipeline.library import requests_of
from trimaran.runtime.tasks.hybrid_embedding import KINDS

TEXTS = ("The harbour was quiet, quiet.", "今天天气很好，我们去公园吧。", "pizza 🍕🍕", "", "word " * 200)
ROW = TASKS["hybrid-embedding"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return zoo.saved_model(tmp_path_factory.mktemp("hybrid") / "m3", "xlm-roberta", "hybrid-embedding")


@pytest.fixture(scope="module")
def graph(folder: Path) -> Artifact:
    return exported(locate(str(folder)), folder.parent, profile=LONG)


def as_flag_embedding(folder: Path, text: str) -> dict[str, Any]:
    """Dense: the first token, normalised. Sparse: relu of a linear layer, the largest by token. ColBERT: all others."""
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    heads = {name: torch.load(folder / f"{name}_linear.pt", weights_only=True) for name in ("sparse", "colbert")}
    encoded = tokenizer(text, truncation=True, max_length=64, return_tensors="pt")
    with torch.inference_mode():
        states = model(**encoded).last_hidden_state[0]
        sparse, colbert = (states @ head["weight"].float().T + head["bias"].float() for head in heads.values())
    unused = {tokenizer.cls_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id, tokenizer.unk_token_id}
    weights: dict[int, float] = {}
    for token, weight in zip(encoded["input_ids"][0].tolist(), sparse[:, 0].relu().tolist(), strict=True):
        if token not in unused and weight > 0:
            weights[token] = max(weight, weights.get(token, 0.0))
    normalize = torch.nn.functional.normalize
    return {"dense": normalize(states[0], dim=0).numpy(), "sparse": weights, "colbert": normalize(colbert[1:]).numpy()}


def test_one_pass_gives_what_the_formulas_give(folder: Path, graph: Artifact) -> None:
    answers = ROW.served.answer(answering(graph), TEXTS)
    for text, answer in zip(TEXTS, answers, strict=True):
        wanted = as_flag_embedding(folder, text)
        np.testing.assert_allclose(answer["dense"], wanted["dense"], atol=1e-5)
        assert {entry["token"]: pytest.approx(entry["weight"], abs=1e-5) for entry in answer["sparse"]} == wanted[
            "sparse"
        ]
        np.testing.assert_allclose(answer["colbert"]["token_embeddings"], wanted["colbert"], atol=1e-5)
        assert len(answer["colbert"]["tokens"]) == len(wanted["colbert"])
        assert [entry["weight"] for entry in answer["sparse"]] == sorted(
            wanted["sparse"].values(), reverse=True
        ) or text
    assert any(answer["sparse"] for answer in answers) and not answers[3]["sparse"]


@pytest.mark.parametrize("outputs", [["dense"], ["sparse"], ["colbert", "dense"]])
def test_only_what_is_asked_for_is_answered(graph: Artifact, outputs: Sequence[str]) -> None:
    (answer,) = ROW.served.answer(answering(graph), TEXTS[:1], outputs=outputs)
    assert set(answer) == set(outputs)
    tensors = ROW.served.tensors([answer])
    assert ("EMBEDDING" in tensors, "WEIGHTS" in tensors, "LENGTH" in tensors) == tuple(
        kind in outputs for kind in KINDS
    )


def test_rows_that_asked_for_less_have_nothing_there(graph: Artifact) -> None:
    (whole,) = ROW.served.answer(answering(graph), TEXTS[:1])
    tensors = ROW.served.tensors([whole, {"dense": whole["dense"]}, {}])
    assert tensors["LENGTH"].ravel().tolist() == [len(whole["colbert"]["tokens"]), 0, 0]
    assert not tensors["EMBEDDING"][2].any() and (tensors["TOKEN_IDS"][1:] == -1).all()


def test_what_is_no_output_is_named(graph: Artifact) -> None:
    for wrong, words in ((["dense", "splade"], "found splade"), ([], "found nothing")):
        with pytest.raises(ValueError, match=f"wants some of dense, sparse, colbert, {words}"):
            ROW.served.answer(answering(graph), TEXTS[:1], outputs=wrong)


def test_the_library_is_asked_for_all_three_outputs(folder: Path, graph: Artifact) -> None:
    ref = locate(str(folder))
    reference = reference_of(ref, folder.parent, profile=LONG)
    check = compare_with_library(str(reference.directory), requests_of(ref, reference), None, 1)
    assert check["compared"] > 40 and not check["refused"]
    assert check["largest"] < 1e-5 and not check["difference"]


def test_a_folder_without_modules_is_pooled_by_its_first_token(folder: Path) -> None:
    ref = locate(str(folder))
    assert (ref.task, ref.token_width) == ("hybrid-embedding", 24)
    assert ref.pooling is not None and (ref.pooling.mode, ref.pooling.normalize) == ("cls", True)
    assert locate(str(folder), task_name="embedding").task == "embedding"
    with pytest.raises(UsageError, match="made of the first token"):
        locate(str(folder), pooling_changes={"mode": "mean"})


def test_heads_are_part_of_the_models_identity_and_must_be_there_and_fit(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    ref = locate(str(copy))
    assert current_digest(ref) == ref.digest
    zoo.save_hybrid_heads(copy, 32)
    assert current_digest(ref) != ref.digest
    zoo.save_hybrid_heads(copy, 16)
    with pytest.raises(IntegrityError, match=r"sparse_linear.pt reads 16 numbers, the encoder gives 32"):
        locate(str(copy))
    (copy / "colbert_linear.pt").write_bytes((copy / "sparse_linear.pt").read_bytes()[:100])
    with pytest.raises(IntegrityError, match="damaged or cut short"):
        locate(str(copy))
    (copy / "colbert_linear.pt").unlink()
    assert locate(str(copy)).task == "embedding", "one head alone makes no hybrid model"
    with pytest.raises(UsageError, match=r"has no colbert_linear.pt"):
        locate(str(copy), task_name="hybrid-embedding")
