"""What a config says about scores."""

from __future__ import annotations

from typing import Any

import pytest

from trimaran.core.errors import UsageError
from trimaran.export.labels import activation_of, labels_of


def test_labels_are_in_the_order_of_the_logits() -> None:
    assert labels_of({"id2label": {"10": "k", "2": "c", "0": "a"}}) == ("a", "c", "k")
    assert labels_of({"num_labels": 3}) == ("LABEL_0", "LABEL_1", "LABEL_2")


def test_an_unknown_activation_is_refused() -> None:
    with pytest.raises(UsageError, match="scores through Tanh"):
        activation_of({"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Tanh"}}, "rerank", "m")


@pytest.mark.parametrize(
    ("task", "config", "wanted"),
    [
        ("text-classification", {"id2label": {"0": "a", "1": "b"}}, "softmax"),
        ("text-classification", {"id2label": {"0": "a"}}, "sigmoid"),
        ("text-classification", {"problem_type": "multi_label_classification"}, "sigmoid"),
        ("text-classification", {"problem_type": "regression"}, "none"),
        ("rerank", {}, "sigmoid"),
        ("rerank", {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}, "none"),
        ("rerank", {"sbert_ce_default_activation_function": "torch.nn.modules.activation.Sigmoid"}, "sigmoid"),
    ],
)
def test_scores_are_activated_as_the_config_says(task: str, config: dict[str, Any], wanted: str) -> None:
    assert activation_of(config, task, "model") == wanted
