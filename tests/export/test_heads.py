"""Architectures and the heads that they have: optimum's answers, and ours where it knows less."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimaran.core.families import FAMILIES
from trimaran.core.tasks import TASKS
from trimaran.export.heads import has_head, heads_of

MASKED, NEXT = "AutoModelForMaskedLM", "AutoModelForNextSentencePrediction"


@pytest.mark.parametrize(
    ("architecture", "heads"),
    [
        ("BertModel", ["AutoModel"]),
        ("T5EncoderModel", ["AutoModel"]),
        ("BertForSequenceClassification", ["AutoModelForSequenceClassification"]),
        ("XLMForQuestionAnsweringSimple", ["AutoModelForQuestionAnswering"]),
        ("XLMWithLMHeadModel", [MASKED]),
        ("BertForMultipleChoice", ["AutoModelForMultipleChoice"]),
        ("BertForPreTraining", [MASKED, NEXT]),
        ("AlbertForPreTraining", [MASKED]),
        ("ElectraForPreTraining", []),
        ("BertLMHeadModel", ["AutoModelForCausalLM"]),
        ("OurOwnForTokenClassification", ["AutoModelForTokenClassification"]),
        ("OurOwnLMHeadModel", []),
    ],
)
def test_an_architecture_has_the_heads_that_it_was_trained_with(architecture: str, heads: list[str]) -> None:
    assert list(heads_of([architecture])) == heads


def test_a_pre_training_class_loads_into_each_of_its_heads(tmp_path: Path) -> None:
    import transformers

    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = transformers.BertConfig(vocab_size=10, **sizes)
    transformers.BertForPreTraining(config).save_pretrained(tmp_path)
    for head in heads_of(["BertForPreTraining"]):
        _, info = getattr(transformers, head).from_pretrained(tmp_path, output_loading_info=True)
        assert not info["missing_keys"], head


def test_a_family_has_the_heads_of_transformers_that_read_the_encoder() -> None:
    tasks = {name: {task for task, row in TASKS.items() if has_head(name, row.model_class)} for name in FAMILIES}
    assert tasks["bert"] >= {"embedding", "text-classification", "question-answering", "fill-mask"}
    assert "question-answering" not in tasks["nomic_bert"]
    assert not tasks["xlnet"] & {"fill-mask", "sparse-embedding"}
    assert tasks["t5"] == {"embedding", "hybrid-embedding", "feature-extraction", "token-classification"}
