"""Which encoders are known: one row a Hugging Face model type, with its inputs and its quirks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from trimaran.core.errors import UsageError

Exporter = Literal["torchscript", "dynamo"]
EXPORTERS: tuple[Exporter, ...] = ("torchscript", "dynamo")
# Relative positions have no table to run out of; this only bounds the profile.
UNBOUNDED = 1_000_000

_WITH_SEGMENTS = ("input_ids", "attention_mask", "token_type_ids")
_PLAIN = ("input_ids", "attention_mask")


@dataclass(frozen=True)
class Family:
    """`fusion` names the pattern set of ONNX Runtime's transformer optimizer; `fused` counts the fused nodes
    that it must find, as (per model, per layer): fewer is a failed optimisation, not a slower success.
    `reserved_positions` are table entries that no token can use (RoBERTa counts from pad_id + 1).
    `longest` computes from the config how many tokens the exported graph is true for, where no table says it.
    `overrides` are set in the config before loading; `classes` replace a task's model class; `lacks` are tasks
    that transformers has no head for, or whose head reads a decoder; `unsupported` are config switches that are
    refused, with the reason. `sdpa` says whether transformers has fused attention for the eager reference.
    """

    name: str
    inputs: tuple[str, ...]
    fusion: str = "bert"
    fused: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    exporter: Exporter = "torchscript"
    opset: int = 17
    reserved_positions: int = 0
    longest: Callable[[Mapping[str, Any]], int] | None = None
    pad_side: Literal["right", "left"] = "right"
    overrides: Mapping[str, Any] = field(default_factory=dict)
    classes: Mapping[str, str] = field(default_factory=dict)
    lacks: tuple[str, ...] = ()
    unsupported: Mapping[str, str] = field(default_factory=dict)
    sdpa: bool = True
    note: str = ""


def _unbounded(config: Mapping[str, Any]) -> int:
    return UNBOUNDED


def _full_attention_reach(config: Mapping[str, Any]) -> int:
    """BigBird attends to everything up to this length; beyond it its block-sparse attention would begin."""
    table = int(config.get("max_position_embeddings", 4096))
    if config.get("attention_type", "block_sparse") != "block_sparse":
        return table
    return min(table, (5 + 2 * int(config.get("num_random_blocks", 3))) * int(config.get("block_size", 64)))


_LAYER = {"Attention": (0, 1), "BiasGelu": (0, 1), "SkipLayerNormalization": (0, 2)}
_WHOLE = {"EmbedLayerNormalization": (1, 0), **_LAYER}
_NORMS = {"BiasGelu": (0, 1), "SkipLayerNormalization": (0, 2)}
_EMBEDDED_NORMS = {"BiasGelu": (0, 1), "SkipLayerNormalization": (1, 2)}
_NO_LM = ("fill-mask", "sparse-embedding")
_DECODER_HEADS = ("text-classification", "question-answering", "rerank", "zero-shot-classification")
_SLOW_TOKENIZER = "needs a tokenizer.json: its own tokenizer is slow"

FAMILIES: dict[str, Family] = {
    row.name: row
    for row in (
        Family("bert", _WITH_SEGMENTS, fused=_WHOLE),
        Family("electra", _WITH_SEGMENTS, fused=_WHOLE),
        Family("ernie", _WITH_SEGMENTS, fused=_WHOLE),
        Family("albert", _WITH_SEGMENTS, fused=_LAYER, note="shared layers stay shared in the file"),
        Family("distilbert", _PLAIN, fused=_WHOLE),
        Family("mobilebert", _WITH_SEGMENTS),
        Family(
            "squeezebert", _WITH_SEGMENTS, fused={"Gelu": (0, 1), "SkipLayerNormalization": (1, 0)}, sdpa=False,
        ),
        Family("roformer", _WITH_SEGMENTS, fused=_EMBEDDED_NORMS, sdpa=False),
        Family(
            "nomic_bert", _WITH_SEGMENTS, fused={"SkipLayerNormalization": (1, 2)}, lacks=("question-answering",),
        ),
        Family("mpnet", _PLAIN, fused=_EMBEDDED_NORMS, reserved_positions=2, sdpa=False),
        Family("roberta", _PLAIN, fused=_LAYER, reserved_positions=2),
        Family("xlm-roberta", _PLAIN, fused=_LAYER, reserved_positions=2),
        Family("camembert", _PLAIN, fused=_LAYER, reserved_positions=2),
        Family("data2vec-text", _PLAIN, fused=_LAYER, reserved_positions=2),
        Family(
            "ibert", _PLAIN, fused=_LAYER, reserved_positions=2, sdpa=False,
            unsupported={"quant_mode": "I-BERT is exported in float; set it to false and quantise with trimaran"},
            note="in float",
        ),
        Family("deberta", _WITH_SEGMENTS, fused={"BiasGelu": (0, 1)}, sdpa=False),
        Family("deberta-v2", _WITH_SEGMENTS, fused=_NORMS, sdpa=False, note="DeBERTa v2 and v3"),
        Family("modernbert", _PLAIN, fused={"Gelu": (0, 1), "SkipLayerNormalization": (0, 2)}),
        Family(
            "big_bird", _PLAIN, fused=_WHOLE, sdpa=False, longest=_full_attention_reach,
            overrides={"attention_type": "original_full"}, note="up to the length at which its attention is still full",
        ),
        Family("xlm", _PLAIN, fused=_NORMS, sdpa=False, note=_SLOW_TOKENIZER),
        Family(
            "flaubert", _PLAIN, fused=_NORMS, sdpa=False, note=_SLOW_TOKENIZER,
            unsupported={"pre_norm": "transformers 5 itself fails on pre-norm FlauBERT"},
        ),
        Family(
            "xlnet", _WITH_SEGMENTS, fused={"BiasGelu": (0, 1), "SkipLayerNormalization": (-1, 2)}, sdpa=False,
            longest=_unbounded, pad_side="left", overrides={"use_mems_eval": False}, lacks=_NO_LM,
            note="padded on the left; <cls> on the right, in segment 2",
        ),
        Family(
            "t5", _PLAIN, fusion="t5", fused={"SkipSimplifiedLayerNormalization": (0, 2)}, longest=_unbounded,
            overrides={"use_cache": False}, classes={"AutoModel": "T5EncoderModel"}, lacks=(*_DECODER_HEADS, *_NO_LM),
            note="the encoder alone",
        ),
        Family(
            "gpt2", _PLAIN, fusion="gpt2", fused={"FastGelu": (0, 1), "SkipLayerNormalization": (0, 2)},
            overrides={"use_cache": False}, lacks=_NO_LM, note="as an encoder, pooled at its last token",
        ),
    )
}  # fmt: skip

# A user's own PyTorch module: its inputs are its own, and no fusion is promised.
MODULE = Family("module", _PLAIN, note="any PyTorch module, through --module")

# What is known not to work, with the reason: refused at once rather than after minutes.
REFUSED: dict[str, str] = {
    "longformer": "its sliding-window attention is traced for one length only, so neither of torch's exporters gives "
    "a graph that is true for others",
}


def family(name: str) -> Family:
    if name in REFUSED:
        raise UsageError(f"The family {name} cannot be exported: {REFUSED[name]}.")
    if name == MODULE.name:
        return MODULE
    if name not in FAMILIES:
        raise UsageError(f"Unknown model family {name!r}.", hint=f"Known: {', '.join(sorted(FAMILIES))}.")
    return FAMILIES[name]
