"""Which encoders are known: one row a Hugging Face model type, with its inputs and its quirks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from trimaran.errors import UsageError

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
    that transformers has no head for, or whose head reads a decoder.
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
    note: str = ""


def _unbounded(config: Mapping[str, Any]) -> int:
    return UNBOUNDED


def _full_attention_reach(config: Mapping[str, Any]) -> int:
    """BigBird attends to everything up to this length; beyond it its block-sparse attention would begin."""
    table = int(config.get("max_position_embeddings", 4096))
    if config.get("attention_type", "block_sparse") != "block_sparse":
        return table
    return min(table, (5 + 2 * int(config.get("num_random_blocks", 3))) * int(config.get("block_size", 64)))


_BERT_FUSIONS = {
    "EmbedLayerNormalization": (1, 0),
    "Attention": (0, 1),
    "BiasGelu": (0, 1),
    "SkipLayerNormalization": (0, 2),
}
_OWN_EMBEDDING_FUSIONS = {"Attention": (0, 1), "BiasGelu": (0, 1), "SkipLayerNormalization": (0, 2)}
_NO_LM = ("fill-mask", "sparse-embedding")
_DECODER_HEADS = ("text-classification", "question-answering", "rerank", "zero-shot-classification")

FAMILIES: dict[str, Family] = {
    row.name: row
    for row in (
        Family("bert", _WITH_SEGMENTS, fused=_BERT_FUSIONS),
        Family("electra", _WITH_SEGMENTS, fused=_OWN_EMBEDDING_FUSIONS),
        Family("ernie", _WITH_SEGMENTS, fused=_OWN_EMBEDDING_FUSIONS),
        Family("albert", _WITH_SEGMENTS, note="shared layers stay shared in the file"),
        Family("distilbert", _PLAIN, fused=_OWN_EMBEDDING_FUSIONS),
        Family("mobilebert", _WITH_SEGMENTS),
        Family("squeezebert", _WITH_SEGMENTS),
        Family("roformer", _WITH_SEGMENTS),
        Family("nomic_bert", _WITH_SEGMENTS, lacks=("question-answering",)),
        Family("mpnet", _PLAIN, reserved_positions=2),
        Family("roberta", _PLAIN, fused=_OWN_EMBEDDING_FUSIONS, reserved_positions=2),
        Family("xlm-roberta", _PLAIN, fused=_OWN_EMBEDDING_FUSIONS, reserved_positions=2),
        Family("camembert", _PLAIN, fused=_OWN_EMBEDDING_FUSIONS, reserved_positions=2),
        Family("data2vec-text", _PLAIN, reserved_positions=2),
        Family("ibert", _PLAIN, reserved_positions=2, note="in float: quant_mode stays off"),
        Family("deberta", _WITH_SEGMENTS),
        Family("deberta-v2", _WITH_SEGMENTS, note="DeBERTa v2 and v3"),
        Family("modernbert", _PLAIN),
        Family(
            "big_bird", _WITH_SEGMENTS, longest=_full_attention_reach, overrides={"attention_type": "original_full"},
            note="up to the length at which its own attention is still full",
        ),
        Family("xlm", _PLAIN, overrides={"use_cache": False}, note="needs a tokenizer.json: its own tokenizer is slow"),
        Family("flaubert", _PLAIN, overrides={"use_cache": False}, note="needs a tokenizer.json: its own tokenizer is slow"),
        Family(
            "xlnet", _WITH_SEGMENTS, longest=_unbounded, pad_side="left", overrides={"use_mems_eval": False},
            lacks=_NO_LM, note="padded on the left, <cls> on the right with segment 2",
        ),
        Family(
            "t5", _PLAIN, fusion="t5", longest=_unbounded, overrides={"use_cache": False},
            classes={"AutoModel": "T5EncoderModel"}, lacks=(*_DECODER_HEADS, *_NO_LM), note="the encoder alone",
        ),
        Family("gpt2", _PLAIN, fusion="gpt2", overrides={"use_cache": False}, lacks=_NO_LM, note="as an encoder: last-token pooling"),
    )
}  # fmt: skip

# What is known not to work, with the reason: refused at once rather than after minutes.
REFUSED: dict[str, str] = {
    "longformer": "its sliding-window attention is traced for one length only, so neither of torch's exporters gives "
    "a graph that is true for others",
}


def family(name: str) -> Family:
    if name in REFUSED:
        raise UsageError(f"The family {name} cannot be exported: {REFUSED[name]}.")
    if name not in FAMILIES:
        raise UsageError(f"Unknown model family {name!r}.", hint=f"Known: {', '.join(sorted(FAMILIES))}.")
    return FAMILIES[name]
