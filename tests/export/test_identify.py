"""What a folder is: Chinese checkpoints under other names, and the task that an architecture means."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.export import zoo
from tests.export.exported import exported
from tests.export.test_bad_input import edit_config, edit_weights
from trimaran.core.errors import UsageError
from trimaran.export.locate import locate


def only_vocabulary(folder: Path) -> Path:
    """The folder with `vocab.txt` for a tokenizer, as older Chinese checkpoints come."""
    for path in folder.glob("tokenizer*"):
        path.unlink()
    (folder / "vocab.txt").write_text("\n".join(zoo.wordpiece_vocabulary()), encoding="utf-8")
    return folder


def test_a_vocabulary_alone_is_a_tokenizer(tmp_path: Path) -> None:
    folder = only_vocabulary(zoo.saved_model(tmp_path / "model", "bert", "embedding"))
    graph = exported(locate(str(folder)), tmp_path)
    assert (graph.directory / "tokenizer.json").is_file()


def test_a_bert_that_calls_itself_roberta_is_recognised_by_its_weights(tmp_path: Path) -> None:
    folder = only_vocabulary(zoo.saved_model(tmp_path / "model", "bert", "text-classification"))
    edit_config(folder, model_type="roberta")
    ref = locate(str(folder))
    assert (ref.family, ref.positions) == ("bert", 64)
    assert exported(ref, tmp_path).checks[0].holds


def test_a_bert_that_calls_itself_roberta_and_cannot_be_told_wants_a_flag(tmp_path: Path) -> None:
    folder = only_vocabulary(zoo.saved_model(tmp_path / "model", "bert", "embedding"))
    edit_config(folder, model_type="roberta")
    with pytest.raises(UsageError, match="--family bert"):
        locate(str(folder))
    ref = locate(str(folder), family_name="bert")
    assert exported(ref, tmp_path).checks[0].holds


def test_ernie_without_a_model_type_is_recognised(tmp_path: Path) -> None:
    folder = only_vocabulary(zoo.saved_model(tmp_path / "model", "ernie", "fill-mask"))
    edit_config(folder, model_type=None)
    ref = locate(str(folder))
    assert (ref.family, ref.task) == ("ernie", "fill-mask")
    assert exported(ref, tmp_path).checks[0].holds


def test_ernie_is_recognised_by_its_weights_alone(tmp_path: Path) -> None:
    folder = zoo.saved_model(tmp_path / "model", "ernie", "fill-mask")
    edit_config(folder, model_type=None, architectures=None)
    assert locate(str(folder), task_name="embedding").family == "ernie"


def test_a_config_that_tells_nothing_wants_a_flag(tmp_path: Path) -> None:
    folder = zoo.saved_model(tmp_path / "model", "ernie", "embedding")
    edit_config(folder, model_type=None, architectures=None)
    with pytest.raises(UsageError, match="Pass --family"):
        locate(str(folder))
    assert locate(str(folder), task_name="embedding", family_name="ernie").family == "ernie"


def test_an_unknown_family_names_the_known_ones(tmp_path: Path) -> None:
    folder = zoo.saved_model(tmp_path / "model", "bert", "embedding")
    edit_config(folder, model_type="mamba")
    with pytest.raises(UsageError, match=r"no known encoder family.*modernbert"):
        locate(str(folder))


def test_big_bird_ends_where_its_attention_becomes_sparse(tmp_path: Path) -> None:
    folder = zoo.saved_model(tmp_path / "model", "big_bird", "embedding", max_position_embeddings=512)
    assert locate(str(folder)).positions == (5 + 2 * 2) * 8


def test_pre_norm_flaubert_is_refused(tmp_path: Path) -> None:
    folder = zoo.saved_model(tmp_path / "model", "flaubert", "embedding", pre_norm=True)
    with pytest.raises(UsageError, match=r"pre_norm .*transformers 5 itself fails"):
        locate(str(folder))


@pytest.mark.parametrize(
    "changes", [{"model_type": "qwen3_moe"}, {"moe_every_n_layers": 2, "model_type": "nomic_bert"}]
)
def test_a_mixture_of_experts_is_refused_with_the_reason(tmp_path: Path, changes: dict[str, Any]) -> None:
    folder = zoo.saved_model(tmp_path / "model", "bert", "embedding")
    edit_config(folder, **changes)
    with pytest.raises(UsageError, match="mixture of experts, chosen for each token"):
        locate(str(folder))
    # Also where the family is named, as it must be for a folder with code of its own.
    edit_config(folder, auto_map={"AutoModel": "code.Model"})
    with pytest.raises(UsageError, match="mixture of experts"):
        locate(str(folder), family_name=changes["model_type"])


def test_the_text_part_of_a_model_of_images_is_not_guessed(tmp_path: Path) -> None:
    folder = zoo.saved_model(tmp_path / "model", "bert", "embedding")
    edit_config(folder, model_type="gemma3", text_config={"hidden_size": 8})
    with pytest.raises(UsageError, match="reads images, too"):
        locate(str(folder))


@pytest.mark.parametrize("place", ["", "retrieval.query"])
def test_adapters_are_not_left_out_silently(tmp_path: Path, place: str) -> None:
    folder = zoo.saved_model(tmp_path / "model", "jina_embeddings_v3", "embedding")
    assert locate(str(folder)).family == "jina_embeddings_v3"
    (folder / place).mkdir(exist_ok=True)
    (folder / place / "adapter_config.json").write_text("{}")
    with pytest.raises(UsageError, match=r"has an adapter in .*merge_and_unload"):
        locate(str(folder))


@pytest.mark.parametrize(
    ("head", "wanted"),
    [
        ("embedding", "embedding"),
        ("text-classification", "text-classification"),
        ("token-classification", "token-classification"),
        ("question-answering", "question-answering"),
        ("fill-mask", "fill-mask"),
        ("rerank", "rerank"),
    ],
)
def test_auto_takes_the_task_of_the_architecture(tmp_path: Path, head: str, wanted: str) -> None:
    assert locate(str(zoo.saved_model(tmp_path / "model", "bert", head))).task == wanted


def test_auto_refuses_when_two_tasks_are_possible(tmp_path: Path) -> None:
    folder = zoo.saved_model(tmp_path / "model", "bert", "rerank")
    edit_config(folder, sentence_transformers=None)
    with pytest.raises(UsageError, match="could mean text-classification or rerank"):
        locate(str(folder))


@pytest.mark.parametrize("architecture", ["ElectraForPreTraining", "T5ForConditionalGeneration"])
def test_auto_refuses_an_architecture_that_tells_no_task(tmp_path: Path, architecture: str) -> None:
    folder = zoo.saved_model(tmp_path / "model", "bert", "embedding")
    edit_config(folder, architectures=[architecture])
    with pytest.raises(UsageError, match="tells no task"):
        locate(str(folder))


def test_a_pre_training_checkpoint_fills_masks(tmp_path: Path) -> None:
    folder = zoo.saved_model(tmp_path / "model", "bert", "fill-mask")
    edit_config(folder, architectures=["BertForPreTraining"])
    assert exported(locate(str(folder), task_name="fill-mask"), tmp_path).checks[0].holds


def test_a_decoder_is_not_taken_for_an_embedding_unasked(tmp_path: Path) -> None:
    folder = zoo.saved_model(tmp_path / "model", "bert", "embedding")
    edit_config(folder, architectures=["BertLMHeadModel"])
    with pytest.raises(UsageError, match=r"BertLMHeadModel\): it was trained to generate text"):
        locate(str(folder))
    assert locate(str(folder), task_name="embedding").task == "embedding"


@pytest.mark.parametrize("family", ["gpt2", "xlnet"])
def test_a_family_that_was_pre_trained_to_generate_gives_embeddings(tmp_path: Path, family: str) -> None:
    folder = zoo.saved_model(tmp_path / "model", family, "embedding")
    edit_config(folder, architectures=[{"gpt2": "GPT2LMHeadModel", "xlnet": "XLNetLMHeadModel"}[family]])
    assert locate(str(folder)).task == "embedding"


def test_a_task_without_its_head_is_refused(tmp_path: Path) -> None:
    folder = zoo.saved_model(tmp_path / "model", "bert", "embedding")
    with pytest.raises(UsageError, match="has no head for question-answering"):
        locate(str(folder), task_name="question-answering")


@pytest.mark.parametrize("task_name", ["auto", "multiple-choice"])
def test_a_head_whose_answer_changes_with_padding_is_refused_with_the_reason(tmp_path: Path, task_name: str) -> None:
    folder = zoo.saved_model(tmp_path / "model", "roformer", "embedding")
    edit_config(folder, architectures=["RoFormerForMultipleChoice"])
    with pytest.raises(UsageError, match="roformer for multiple-choice cannot be exported: it reads the last position"):
        locate(str(folder), task_name=task_name)


def test_a_task_that_the_family_lacks_is_refused(tmp_path: Path) -> None:
    folder = zoo.saved_model(tmp_path / "model", "xlnet", "embedding")
    with pytest.raises(UsageError, match="family xlnet has no head for fill-mask"):
        locate(str(folder), task_name="fill-mask")


def test_a_splade_folder_is_a_sparse_embedding(tmp_path: Path) -> None:
    folder = zoo.saved_model(tmp_path / "model", "bert", "fill-mask")
    rows = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.sparse_encoder.models.MLMTransformer"},
        {"idx": 1, "name": "1", "path": "1", "type": "sentence_transformers.sparse_encoder.models.SpladePooling"},
    ]
    (folder / "modules.json").write_text(json.dumps(rows))
    (folder / "1").mkdir()
    (folder / "1" / "config.json").write_text('{"pooling_strategy": "sum", "activation_function": "log1p_relu"}')
    ref = locate(str(folder))
    assert ref.task == "sparse-embedding"
    assert ref.sparse is not None
    assert (ref.sparse.strategy, ref.sparse.activation) == ("sum", "log1p_relu")
    assert exported(ref, tmp_path).checks[0].holds


def test_a_changed_checkpoint_is_another_model(tmp_path: Path) -> None:
    folder = zoo.saved_model(tmp_path / "model", "bert", "embedding")
    before = locate(str(folder)).digest
    edit_weights(folder, lambda state: {**state, "embeddings.LayerNorm.bias": state["embeddings.LayerNorm.bias"] + 1})
    assert locate(str(folder)).digest != before
