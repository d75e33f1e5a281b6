"""Which encoders are known: one row a Hugging Face model type, with its inputs and its quirks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from trimaran.errors import UsageError

_WITH_SEGMENTS = ("input_ids", "attention_mask", "token_type_ids")
_PLAIN = ("input_ids", "attention_mask")


@dataclass(frozen=True)
class Family:
    """`fusion` names the pattern set of ONNX Runtime's transformer optimizer; `fused` counts the fused nodes
    that it must find, as (per model, per layer): fewer is a failed optimisation, not a slower success.
    `reserved_positions` are table entries that no token can use (RoBERTa counts from pad_id + 1).
    """

    name: str
    inputs: tuple[str, ...]
    fusion: str = "bert"
    fused: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    exporter: Literal["torchscript", "dynamo"] = "torchscript"
    opset: int = 17
    reserved_positions: int = 0
    pad_side: Literal["right", "left"] = "right"


_BERT_FUSIONS = {
    "EmbedLayerNormalization": (1, 0),
    "Attention": (0, 1),
    "BiasGelu": (0, 1),
    "SkipLayerNormalization": (0, 2),
}
_OWN_EMBEDDING_FUSIONS = {"Attention": (0, 1), "BiasGelu": (0, 1), "SkipLayerNormalization": (0, 2)}

FAMILIES: dict[str, Family] = {
    row.name: row
    for row in (
        Family("bert", _WITH_SEGMENTS, fused=_BERT_FUSIONS),
        Family("electra", _WITH_SEGMENTS, fused=_OWN_EMBEDDING_FUSIONS),
        Family("ernie", _WITH_SEGMENTS, fused=_OWN_EMBEDDING_FUSIONS),
        Family("distilbert", _PLAIN, fused=_OWN_EMBEDDING_FUSIONS),
        Family("roberta", _PLAIN, fused=_OWN_EMBEDDING_FUSIONS, reserved_positions=2),
        Family("xlm-roberta", _PLAIN, fused=_OWN_EMBEDDING_FUSIONS, reserved_positions=2),
        Family("camembert", _PLAIN, fused=_OWN_EMBEDDING_FUSIONS, reserved_positions=2),
    )
}


def family(name: str) -> Family:
    if name not in FAMILIES:
        raise UsageError(f"Unknown model family {name!r}.", hint=f"Known: {', '.join(sorted(FAMILIES))}.")
    return FAMILIES[name]
