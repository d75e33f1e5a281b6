"""Prompts of a sentence-transformers folder stand before a text as sentence-transformers puts them there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import answers
from tests.export import zoo
from tests.export.exported import LONG, answering, exported, reference_of
from trimaran.core.corpus import shipped_texts
from trimaran.core.errors import UsageError
from trimaran.export.locate import locate
from trimaran.judging.final_answers import final_answers
from trimaran.judging.golden import golden_rows

PROMPTS = {"query": "search for this: ", "passage": "a passage of text: ", "clustering": "identify the topic: "}
TEXTS = ["A short one.", "", " ".join(shipped_texts("judging")[:9]), *shipped_texts("judging")[:5]]


def sentence_folder(root: Path, *, family: str = "bert", **settings: Any) -> Any:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Normalize, Pooling, Transformer

    zoo.saved_model(root / "plain", family, "embedding")
    modules = [Transformer(str(root / "plain"), max_seq_length=64), Pooling(32, pooling_mode="mean"), Normalize()]
    model = SentenceTransformer(modules=modules, device="cpu", **settings)
    model.save(str(root / "sentence"))
    return SentenceTransformer(str(root / "sentence"), device="cpu")


@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta"])
def test_the_default_prompt_and_named_ones_are_those_of_sentence_transformers(tmp_path: Path, family: str) -> None:
    model = sentence_folder(tmp_path, family=family, prompts=PROMPTS, default_prompt_name="query")
    served = answering(exported(locate(str(tmp_path / "sentence")), tmp_path, profile=LONG))
    np.testing.assert_allclose(np.stack(answers.embeddings(served, TEXTS)), model.encode(TEXTS), atol=1e-5)
    assert set(model.prompts) == {*PROMPTS, "document"}
    for name in model.prompts:
        found = np.stack(answers.embeddings(served, TEXTS, prompt=name))
        np.testing.assert_allclose(found, model.encode(TEXTS, prompt_name=name), atol=1e-5)
    assert not np.allclose(model.encode(TEXTS), model.encode(TEXTS, prompt_name="document"), atol=1e-3)


def test_eager_pytorch_reads_the_golden_requests_with_their_prompts(tmp_path: Path) -> None:
    model = sentence_folder(tmp_path, prompts=PROMPTS, default_prompt_name="passage")
    reference = reference_of(locate(str(tmp_path / "sentence")), tmp_path, profile=LONG)
    rows = golden_rows("embedding", TEXTS, {}, prompts=tuple(reference.tokenizer.prompts))
    asked = [json.loads(str(row["OPTIONS"]) or "{}").get("prompt") for row in rows]
    assert set(asked) == {None, "document", *PROMPTS}
    found = final_answers(reference, rows, threads=1)["EMBEDDING"]
    wanted = [model.encode(row["TEXT"], prompt_name=name) for row, name in zip(rows, asked, strict=True)]
    np.testing.assert_allclose(found, np.stack(wanted), atol=1e-5)


def test_golden_requests_of_a_model_without_prompts_have_no_options() -> None:
    assert all("OPTIONS" not in row for row in golden_rows("embedding", TEXTS, {}))


def test_an_unknown_prompt_is_refused_with_the_names(tmp_path: Path) -> None:
    sentence_folder(tmp_path, prompts=PROMPTS)
    served = answering(exported(locate(str(tmp_path / "sentence")), tmp_path, profile=LONG))
    with pytest.raises(ValueError, match=r"Unknown prompt 'quary'\. Known: query, document, clustering, passage."):
        answers.embeddings(served, TEXTS, prompt="quary")


def test_a_model_whose_prompts_are_all_empty_has_none(tmp_path: Path) -> None:
    sentence_folder(tmp_path)
    saved = json.loads((tmp_path / "sentence" / "config_sentence_transformers.json").read_text(encoding="utf-8"))
    assert saved["prompts"] == {"query": "", "document": ""}
    ref = locate(str(tmp_path / "sentence"))
    assert (ref.prompts, ref.default_prompt) == ({}, "")
    served = answering(exported(ref, tmp_path, profile=LONG))
    with pytest.raises(ValueError, match=r"This model has no prompts."):
        answers.embeddings(served, TEXTS, prompt="query")


def test_a_default_prompt_that_is_not_there_is_refused(tmp_path: Path) -> None:
    sentence_folder(tmp_path, prompts=PROMPTS)
    path = tmp_path / "sentence" / "config_sentence_transformers.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**config, "default_prompt_name": "title"}), encoding="utf-8")
    with pytest.raises(
        UsageError, match=r"The default prompt 'title' .* is none of its prompts: query, document, clus"
    ):
        locate(str(tmp_path / "sentence"))


def test_a_pooling_that_leaves_the_prompt_out_stays_refused(tmp_path: Path) -> None:
    sentence_folder(tmp_path, prompts=PROMPTS, default_prompt_name="query")
    path = next((tmp_path / "sentence").glob("1_Pooling/config.json"))
    config = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**config, "include_prompt": False}), encoding="utf-8")
    with pytest.raises(UsageError, match=r"leaves its prompt out of the pooling"):
        locate(str(tmp_path / "sentence"))


def test_another_prompt_is_another_artifact(tmp_path: Path) -> None:
    sentence_folder(tmp_path, prompts=PROMPTS, default_prompt_name="query")
    first = reference_of(locate(str(tmp_path / "sentence")), tmp_path, profile=LONG)
    path = tmp_path / "sentence" / "config_sentence_transformers.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**config, "default_prompt_name": "passage"}), encoding="utf-8")
    second = reference_of(locate(str(tmp_path / "sentence")), tmp_path, profile=LONG)
    assert first.digest != second.digest
    assert (first.tokenizer.default_prompt, second.tokenizer.default_prompt) == ("query", "passage")


@pytest.mark.parametrize("most", [None, 5])
def test_prompts_and_weights_of_a_sparse_encoder_are_those_of_sentence_transformers(
    tmp_path: Path, most: int | None
) -> None:
    from sentence_transformers import SparseEncoder
    from sentence_transformers.sparse_encoder.models import MLMTransformer, SpladePooling

    zoo.saved_model(tmp_path / "plain", "bert", "sparse-embedding")
    modules = [MLMTransformer(str(tmp_path / "plain")), SpladePooling()]
    model = SparseEncoder(
        modules=modules, device="cpu", prompts=PROMPTS, default_prompt_name="query", max_active_dims=most
    )
    model.save(str(tmp_path / "sparse"))
    served = answering(exported(locate(str(tmp_path / "sparse")), tmp_path, profile=LONG))
    for name in (None, *PROMPTS):
        wanted = model.encode([TEXTS[0]], prompt_name=name, convert_to_sparse_tensor=False)[0]
        found = {entry["token"]: entry["weight"] for entry in answers.sparse_vectors(served, TEXTS[:1], prompt=name)[0]}
        kept = {int(index): float(wanted[index]) for index in np.flatnonzero(np.asarray(wanted) > 0)}
        assert found == pytest.approx(kept, abs=1e-5)
        assert most is None or len(found) == most
