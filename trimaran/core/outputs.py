"""The tensors that a task's graph gives, from the model's width and its number of labels."""

from __future__ import annotations

from trimaran.core.spec import Dim, DType, TensorSpec


def spec_of(name: str, *dims: Dim, dtype: DType = "float32") -> TensorSpec:
    return TensorSpec(name=name, dtype=dtype, dims=("batch", *dims))


def embedding_outputs(hidden: int, labels: int) -> tuple[TensorSpec, ...]:
    return (spec_of("embedding", hidden),)


def logit_outputs(hidden: int, labels: int) -> tuple[TensorSpec, ...]:
    return (spec_of("logits", labels),)


def token_vector_outputs(hidden: int, labels: int) -> tuple[TensorSpec, ...]:
    return (spec_of("token_embeddings", "sequence", hidden),)


def token_logit_outputs(hidden: int, labels: int) -> tuple[TensorSpec, ...]:
    return (spec_of("token_logits", "sequence", labels),)


def span_outputs(hidden: int, labels: int) -> tuple[TensorSpec, ...]:
    return (spec_of("start_logits", "sequence"), spec_of("end_logits", "sequence"))


def filling_outputs(hidden: int, labels: int) -> tuple[TensorSpec, ...]:
    return (spec_of("token_scores", "sequence", labels), spec_of("token_ids", "sequence", labels, dtype="int64"))


def score_outputs(hidden: int, labels: int) -> tuple[TensorSpec, ...]:
    return (spec_of("score", 1),)


def weight_outputs(hidden: int, labels: int) -> tuple[TensorSpec, ...]:
    return (spec_of("weights", hidden),)
