"""Static embeddings go through the same line: a table of token vectors and their mean."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import answers
from tests.export import zoo
from tests.export.exported import LONG, answering, exported, reference_of
from trimaran.core.config import DeployConfig
from trimaran.core.errors import UsageError
from trimaran.export.library import compare_with_library
from trimaran.export.locate import locate

TEXTS = ["A short one.", "今天天气很好，我们去公园吧。 🍕", "", " ", "many words " * 4]
TOO_LONG = "many words " * 60
WIDTH = 24


def _folder(root: Path, kind: str) -> Path:
    import torch
    from safetensors.torch import save_file
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding

    tokenizer = zoo.tokenizer_of("wordpiece").backend_tokenizer
    tokens = tokenizer.get_vocab_size()
    generator = torch.Generator().manual_seed(0)
    if kind == "sentence-transformers":
        table = torch.randn(tokens, WIDTH, generator=generator)
        modules = [StaticEmbedding(tokenizer, embedding_weights=table), Normalize()]
        SentenceTransformer(modules=modules, prompts={"query": "query: ", "document": ""}).save_pretrained(str(root))
        return root
    root.mkdir()
    shared = {
        "embeddings": torch.randn(100, WIDTH, generator=generator),
        "mapping": torch.arange(tokens) % 100,
        "weights": torch.rand(tokens, generator=generator),
    }
    save_file(shared, root / "model.safetensors")
    tokenizer.save(str(root / "tokenizer.json"))
    (root / "config.json").write_text(json.dumps({"model_type": "model2vec", "normalize": True}))
    kinds = {".": "StaticEmbedding", "1_Normalize": "Normalize"}
    listed = [
        {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{name}"}
        for index, (path, name) in enumerate(kinds.items())
    ]
    (root / "modules.json").write_text(json.dumps(listed))
    return root


def _asked(prompts: tuple[str, ...]) -> list[dict[str, Any]]:
    options = ("", *(json.dumps({"prompt": name}) for name in prompts))
    return [{"TEXT": text, "OPTIONS": option} for text in (*TEXTS, TOO_LONG) for option in options]


@pytest.mark.parametrize("kind", ["sentence-transformers", "model2vec"])
def test_a_table_embeds_as_sentence_transformers_does(tmp_path: Path, kind: str) -> None:
    from sentence_transformers import SentenceTransformer

    folder = _folder(tmp_path / "model", kind)
    ref = locate(str(folder))
    assert (ref.family, ref.task, ref.width, ref.layers) == ("static", "embedding", WIDTH, 0)
    graph = exported(ref, tmp_path, profile=LONG)
    found = answers.embeddings(answering(graph), TEXTS)
    np.testing.assert_allclose(found, SentenceTransformer(str(folder), device="cpu").encode(TEXTS), atol=1e-5)
    check = compare_with_library(
        str(reference_of(ref, tmp_path, profile=LONG).directory), _asked(tuple(ref.prompts)), 64, 1
    )
    assert check["library"] and not check["difference"] and check["compared"] > len(TEXTS)


def test_a_model2vec_folder_without_modules_is_read_as_one_with_them(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "model", "model2vec")
    pooling = locate(str(folder)).pooling
    (folder / "modules.json").unlink()
    assert locate(str(folder)).pooling == pooling


def test_a_table_refuses_other_tasks_and_poolings(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "model", "model2vec")
    with pytest.raises(UsageError, match="cannot do fill-mask"):
        locate(str(folder), task_name="fill-mask")
    with pytest.raises(UsageError, match="its pooling is the mean"):
        locate(str(folder), pooling_changes={"mode": "cls"})


def test_a_table_of_vectors_is_deployed_for_texts_of_two_thousand_tokens(tmp_path: Path) -> None:
    ref = locate(str(_folder(tmp_path / "model", "model2vec")))
    assert (
        DeployConfig(model="m").profile_for(ref.model_copy(update={"default_sequence": 100_000})).sequence.maximum
        == 2048
    )
