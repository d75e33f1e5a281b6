"""Reads from config.json what a model's scores mean: the names of its labels and the activation of its logits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trimaran.core.errors import UsageError
from trimaran.core.spec import Activation

_ACTIVATIONS: dict[str, Activation] = {"Sigmoid": "sigmoid", "Identity": "none"}


def labels_of(config: Mapping[str, Any]) -> tuple[str, ...]:
    labels = config.get("id2label")
    if not isinstance(labels, dict) or not labels:
        return tuple(f"LABEL_{index}" for index in range(int(config.get("num_labels", 2))))
    return tuple(str(labels[key]) for key in sorted(labels, key=int))


def activation_of(config: Mapping[str, Any], task_name: str, source: str) -> Activation:
    """What turns logits into scores, by the rules of transformers' pipelines and sentence-transformers."""
    if task_name == "rerank":
        stated = cross_encoder_activation(config)
        if stated and stated not in _ACTIVATIONS:
            raise UsageError(
                f"{source} scores through {stated}, which is not supported.", hint="Known: Sigmoid, Identity."
            )
        return _ACTIVATIONS[stated or "Sigmoid"]
    if task_name != "text-classification":
        return "softmax"
    if config.get("problem_type") == "regression":
        return "none"
    return (
        "sigmoid"
        if config.get("problem_type") == "multi_label_classification" or len(labels_of(config)) == 1
        else "softmax"
    )


def cross_encoder_activation(config: Mapping[str, Any]) -> str | None:
    """The class name of a CrossEncoder's activation, "" when it states none, None for any other model."""
    section = config.get("sentence_transformers")
    if isinstance(section, dict):
        return str(section.get("activation_fn", "")).rsplit(".", 1)[-1]
    legacy = config.get("sbert_ce_default_activation_function")
    return None if legacy is None else str(legacy).rsplit(".", 1)[-1]
