"""Decoder stacks embed texts as sentence-transformers does, though they are padded on the other side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import answers
from tests.export import zoo
from tests.export.exported import LONG, answering, exported, reference_of
from tests.export.test_bad_input import edit_config
from tests.export.test_embedding import sentence_model
from trimaran.core.corpus import encoder_of, shipped_texts
from trimaran.core.errors import UsageError
from trimaran.export.locate import locate

TEXTS = [
    "A short one.",
    "今天天气很好，我们去公园吧。 🍕",
    "",
    " ",
    *shipped_texts("judging")[:6],
    "far too long " * 60,
]
CAUSAL = {"architectures": ["Qwen3ForCausalLM"]}


def _theirs(folder: Path, **options: Any) -> Any:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu", processor_kwargs={"padding_side": "left"})
    model.max_seq_length = 64
    return model.encode(TEXTS, batch_size=4, convert_to_numpy=True, **options)


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("qwen3", CAUSAL),
        pytest.param("qwen3", {**CAUSAL, "is_causal": False}, marks=pytest.mark.slow),
        pytest.param("llama", {"architectures": ["LlamaForCausalLM"], "is_causal": False}, marks=pytest.mark.slow),
        pytest.param("mistral", {"architectures": ["MistralForCausalLM"]}, marks=pytest.mark.slow),
    ],
    ids=["causal", "bidirectional", "llama-bidirectional", "mistral"],
)
def test_a_plain_decoder_folder_embeds_as_sentence_transformers_does(
    tmp_path: Path, family: str, changes: dict[str, Any]
) -> None:
    folder = zoo.saved_model(tmp_path / "model", family, "embedding")
    edit_config(folder, **changes)
    graph = exported(locate(str(folder)), tmp_path, profile=LONG)
    mine = answers.embeddings(answering(graph), TEXTS)
    np.testing.assert_allclose(mine, _theirs(folder, normalize_embeddings=True), atol=1e-5)


@pytest.mark.slow
def test_embeddinggemma_with_its_bidirectional_masks_is_exported_whole(tmp_path: Path) -> None:
    """Sliding and full layers, mean pooling, a Dense layer, unit length, prompts."""
    sentence_model(tmp_path, "gemma3_text", dense=True, use_bidirectional_attention=True)
    folder = tmp_path / "sentence"
    config = json.loads((folder / "config_sentence_transformers.json").read_text())
    config["prompts"] = {"query": "task: search result | query: ", "document": "title: none | text: "}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(config))
    graph = exported(locate(str(folder)), tmp_path, profile=LONG)
    served = answering(graph)
    for prompt in (None, "query", "document"):
        mine = answers.embeddings(served, TEXTS, prompt=prompt)
        np.testing.assert_allclose(mine, _theirs(folder, prompt_name=prompt), atol=1e-5)


def test_the_encoder_of_a_t5gemma_folder_is_read_from_its_own_section_of_the_config(tmp_path: Path) -> None:
    """Its decoder has other sizes, and neither they nor its weights are used."""
    import torch
    import transformers

    folder = zoo.saved_model(tmp_path / "model", "t5gemma", "embedding")
    config = transformers.AutoConfig.from_pretrained(folder)
    config.is_encoder_decoder, config.decoder.intermediate_size = True, 96
    torch.manual_seed(1)
    transformers.T5GemmaForConditionalGeneration(config).eval().save_pretrained(folder)
    ref = locate(str(folder), task_name="embedding")
    assert (ref.hidden, ref.layers, ref.heads, ref.positions) == (32, 2, 4, 64)
    graph = exported(ref, tmp_path, profile=LONG)
    mine = answers.embeddings(answering(graph), TEXTS)
    np.testing.assert_allclose(mine, _theirs(folder, normalize_embeddings=True), atol=1e-5)
    edit_config(folder, encoder=None)
    with pytest.raises(UsageError, match="has no section 'encoder', which describes the encoder of a t5gemma"):
        locate(str(folder), task_name="embedding")


def test_a_decoder_that_needs_code_of_its_own_is_refused_though_its_family_is_known(tmp_path: Path) -> None:
    folder = zoo.saved_model(tmp_path / "model", "qwen2", "embedding")
    edit_config(folder, auto_map={"AutoModel": "modeling_qwen.Qwen2Model"})
    with pytest.raises(UsageError, match="needs code of its own"):
        locate(str(folder))


def test_a_marker_without_a_vector_refuses_only_the_texts_that_have_it(tmp_path: Path) -> None:
    """EmbeddingGemma's tokenizer has a token for images, which its table of vectors does not have."""
    import transformers

    folder = zoo.saved_model(tmp_path / "model", "qwen3", "embedding")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<image>"]})
    tokenizer.save_pretrained(folder)
    encoder = encoder_of(reference_of(locate(str(folder)), tmp_path))
    assert encoder.rows(["a text"])
    with pytest.raises(ValueError, match="The text has the token <image>, for which the model has no vector"):
        encoder.rows(["a text", "a text with an <image> in it"])
