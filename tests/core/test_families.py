"""The table of families agrees with transformers, and its page is current."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimaran.core.errors import UsageError
from trimaran.core.families import FAMILIES, REFUSED, family
from trimaran.export.families_page import families_page

DOCS = Path(__file__).parents[2] / "docs" / "families.md"
WANTED = [
    "bert",
    "roberta",
    "distilbert",
    "albert",
    "xlnet",
    "electra",
    "xlm-roberta",
    "camembert",
    "ernie",
    "mpnet",
    "deberta",
    "deberta-v2",
    "modernbert",
    "mobilebert",
    "xlm",
    "flaubert",
    "roformer",
    "squeezebert",
    "nomic_bert",
    "data2vec-text",
    "ibert",
    "big_bird",
    "t5",
    "gpt2",
    "rembert",
    "megatron-bert",
    "bert-generation",
    "gte",
    "jina_embeddings_v3",
    "roberta-prelayernorm",
    "xlm-roberta-xl",
    "luke",
    "esm",
    "esmc",
    "eurobert",
    "ultrabert",
    "mt5",
    "umt5",
    "t5gemma",
    "qwen3",
    "qwen2",
    "llama",
    "mistral",
    "ministral3",
    "smollm3",
    "granite",
    "phi3",
    "lfm2",
    "gemma",
    "gemma2",
    "gemma3_text",
    "olmo2",
    "modernbert-decoder",
    "opt",
    "gpt_neox",
    "bloom",
]


def test_every_promised_family_has_a_row() -> None:
    assert sorted(FAMILIES) == sorted(WANTED)
    assert not set(FAMILIES) & set(REFUSED)


def test_a_refused_head_is_one_of_transformers_for_the_family() -> None:
    import transformers

    for row in FAMILIES.values():
        config = transformers.CONFIG_MAPPING[row.name]
        for head in row.refused_heads:
            assert config in getattr(transformers, head)._model_mapping, row.name


def test_the_row_says_whether_transformers_has_fused_attention_for_the_family() -> None:
    import transformers

    for row in FAMILIES.values():
        config = transformers.AutoConfig.for_model(row.name)
        model = transformers.AutoModel._model_mapping[type(config)]
        model = model[0] if isinstance(model, tuple) else model
        assert bool(model._supports_sdpa) is row.sdpa, row.name


def test_an_unknown_family_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"Unknown model family 'brt'.*bert"):
        family("brt")


def test_the_page_is_current() -> None:
    assert DOCS.read_text(encoding="utf-8") == families_page(), "run python -m trimaran.export.families_page"
