"""A late-interaction folder answers as sentence-transformers' MultiVectorEncoder answers to the same texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.export.exported import LONG, answering, exported, reference_of
from tests.export.late_interaction import FIXED, library, saved_late, saved_pylate
from trimaran.core.corpus import answering_of, shipped_texts
from trimaran.core.errors import IntegrityError, UsageError
from trimaran.core.late_interaction import maximum_similarities
from trimaran.core.tasks import task
from trimaran.export.library import compare_with_library
from trimaran.export.locate import locate
from trimaran.export.torch_engine import TorchEngine
from trimaran.pipeline.library import requests_of
from trimaran.runtime.answers import Answering

TEXTS = [
    "What floats?",
    "",
    "天气 is fine, isn't it! 🍕",
    "[MASK] ends with [MASK]",
    " ".join(shipped_texts("judging")[:9]),
    *shipped_texts("judging")[:4],
]


def vectors(served: Answering, texts: list[str], prompt: str | None = None) -> list[Any]:
    answers = task("feature-extraction").served.answer(served, texts, prompt=prompt)
    assert all(len(answer["tokens"]) == len(answer["token_embeddings"]) for answer in answers)
    return [answer["token_embeddings"] for answer in answers]


def assert_same(served: Answering, model: Any, texts: list[str] = TEXTS) -> None:
    for prompt, encode in (
        ("query", model.encode_query),
        ("document", model.encode_document),
        (None, model.encode_document),
    ):
        found, wanted = vectors(served, texts, prompt), encode(texts, convert_to_numpy=True)
        assert [row.shape for row in found] == [row.shape for row in wanted], prompt
        for mine, theirs in zip(found, wanted, strict=True):
            np.testing.assert_allclose(mine, theirs, atol=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"expansion": {**FIXED, "attend": True}},
        {"expansion": {"strategy": "min", "length": 24}, "query_length": 40, "document_length": 50},
        {"expansion": None, "query_length": 16, "document_length": 32, "skiplist_tasks": ["query", "document"]},
        {"expansion": {**FIXED, "token": "[PAD]"}, "prompts": {"query": "find: ", "passage": "text: "}},
        {"normalize": False},
    ],
    ids=["hidden", "attended", "minimum", "none", "another token", "not normalized"],
)
def test_both_sides_are_those_of_sentence_transformers(tmp_path: Path, settings: dict[str, Any]) -> None:
    folder = saved_late(tmp_path / "late", **settings)
    ref = locate(str(folder))
    assert (ref.task, ref.width) == ("feature-extraction", 12)
    assert_same(answering(exported(ref, tmp_path, profile=LONG)), library(folder))


@pytest.mark.parametrize("family", ["modernbert", "xlm-roberta", "distilbert"])
def test_other_families_hide_the_expansion_alike(tmp_path: Path, family: str) -> None:
    folder = saved_late(tmp_path / "late", family=family)
    assert_same(answering(exported(locate(str(folder)), tmp_path, profile=LONG)), library(folder))


@pytest.mark.parametrize(
    "settings",
    [{}, {"do_query_expansion": False}, {"skiplist_words": ["the", "?"], "attend_to_expansion_tokens": True}],
    ids=["as it is", "no expansion", "own skip list"],
)
def test_a_folder_of_pylate_is_read_as_sentence_transformers_reads_it(tmp_path: Path, settings: dict[str, Any]) -> None:
    folder = saved_pylate(tmp_path / "late", **settings)
    assert_same(answering(exported(locate(str(folder)), tmp_path, profile=LONG)), library(folder))


def test_a_marker_of_pylate_in_the_vocabulary_is_one_token(tmp_path: Path) -> None:
    folder = saved_pylate(tmp_path / "late", query_prefix="[MASK] ", document_prefix="the ")
    served = answering(exported(locate(str(folder)), tmp_path, profile=LONG))
    assert task("feature-extraction").served.answer(served, ["a"], prompt="query")[0]["tokens"][1] == "[MASK]"
    assert_same(served, library(folder))


@pytest.mark.parametrize("similarity", ["maxsim", "meanmaxsim"])
def test_scores_are_those_of_the_library(tmp_path: Path, similarity: str) -> None:
    folder = saved_late(tmp_path / "late", normalize=False, similarity=similarity)
    served, model = answering(exported(locate(str(folder)), tmp_path, profile=LONG)), library(folder)
    assert served.facts["similarity"] == similarity
    (query,), documents = vectors(served, ["What floats?"], "query"), vectors(served, TEXTS)
    wanted = model.similarity(model.encode_query(["What floats?"]), model.encode_document(TEXTS))[0]
    np.testing.assert_allclose(maximum_similarities(query, documents, similarity=similarity), wanted, rtol=1e-5)


def test_the_proof_asks_the_library_for_both_sides(tmp_path: Path) -> None:
    ref = locate(str(saved_late(tmp_path / "late", document_length=50)))
    reference = reference_of(ref, tmp_path, profile=LONG)
    rows = requests_of(ref, reference)
    assert {row["OPTIONS"] for row in rows} == {"", '{"prompt": "query"}', '{"prompt": "document"}'}
    check = compare_with_library(str(reference.directory), rows, LONG.sequence.maximum, 1)
    assert check["library"].endswith("(MultiVectorEncoder)")
    assert (check["difference"], check["refused"]) == ("", 0)
    assert check["largest"] < 2e-5


def test_every_other_text_is_judged_as_a_query(tmp_path: Path) -> None:
    reference = reference_of(locate(str(saved_late(tmp_path / "late"))), tmp_path, profile=LONG)
    from trimaran.judging.quality import asked_texts

    asked = asked_texts(reference, ["one", "two", "three"])
    assert asked == ["one", ("two", "query"), "three"]
    engine = TorchEngine(str(reference.entry_path), threads=1)
    served = answering_of(reference, engine.infer, policy="padded", maximum_batch=3)
    encodings, outputs = served.encoded(asked)
    assert len(encodings[1].ids) == FIXED["length"] > len(encodings[0].ids)
    np.testing.assert_allclose(outputs["token_embeddings"][1], vectors(served, ["two"], "query")[0], atol=1e-6)


def test_a_pair_is_refused_by_the_server(tmp_path: Path) -> None:
    reference = reference_of(locate(str(saved_late(tmp_path / "late"))), tmp_path, profile=LONG)
    served = answering_of(reference, lambda inputs: inputs)
    with pytest.raises(ValueError, match="single texts"):
        task("feature-extraction").served.answer(served, [("a", "query")])


def test_a_changed_projection_is_noticed(tmp_path: Path) -> None:
    folder = saved_late(tmp_path / "late")
    reference = reference_of(locate(str(folder)), tmp_path, profile=LONG)
    (folder / "1_Dense" / "model.safetensors").write_bytes(b"other")
    with pytest.raises(IntegrityError, match="has changed"):
        TorchEngine(str(reference.entry_path), threads=1)


def change(path: Path, **values: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def test_what_cannot_be_read_is_refused_with_the_reason(tmp_path: Path) -> None:
    folder = saved_late(tmp_path / "late")
    with pytest.raises(UsageError, match="late-interaction model, which gives a vector for each token"):
        locate(str(folder), task_name="embedding")
    with pytest.raises(UsageError, match="gives no hidden_states"):
        locate(str(folder), task_name="feature-extraction", extras=("hidden_states",))
    change(folder / "2_MultiVectorMask" / "config.json", keep_only_token_ids=[3])
    with pytest.raises(UsageError, match="as models of images do"):
        locate(str(folder))
    change(folder / "config.json", architectures=["HF_ColBERT"])
    with pytest.raises(UsageError, match="Stanford's ColBERT") as refusal:
        locate(str(folder))
    assert "MultiVectorEncoder(" in refusal.value.hint


def test_an_expansion_token_that_the_tokenizer_lacks_is_refused(tmp_path: Path) -> None:
    folder = saved_late(tmp_path / "late")
    change(folder / "sentence_bert_config.json", query_expansion={**FIXED, "token": "[NONE]"})
    with pytest.raises(UsageError, match=r"fills queries up with \[NONE\], which its tokenizer does not have"):
        locate(str(folder))


def test_a_decoder_that_puts_no_token_behind_a_text_must_attend_to_the_expansion(tmp_path: Path) -> None:
    folder = saved_late(tmp_path / "late", family="qwen3", expansion=None, skipped=())
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps({**tokenizer, "post_processor": None}))
    change(folder / "sentence_bert_config.json", query_expansion=FIXED)
    with pytest.raises(UsageError, match="the end of a query cannot be told"):
        locate(str(folder))
