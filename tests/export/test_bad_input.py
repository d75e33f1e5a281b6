"""Models that would give wrong numbers are named and refused."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.export import zoo
from tests.export.exported import PROFILE, exported, reference_of
from trimaran.core.errors import IntegrityError, UnavailableError, UsageError
from trimaran.core.spec import Range, ShapeProfile
from trimaran.export.load import load_model
from trimaran.export.locate import locate


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    return zoo.saved_model(tmp_path / "model", "bert", "text-classification")


def edit_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    config = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))


def edit_weights(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    from safetensors.torch import load_file, save_file

    state = load_file(folder / "model.safetensors")
    save_file(change(state), folder / "model.safetensors", metadata={"format": "pt"})


def refused(folder: Path, words: str, error: type[Exception] = UsageError, **how: Any) -> None:
    with pytest.raises(error, match=words):
        load_model(locate(str(folder), **how), attention="eager")


def test_tokenizer_with_more_tokens_than_the_model_is_refused(bert: Path, tmp_path: Path) -> None:
    edit_config(bert, vocab_size=100)
    with pytest.raises(UsageError, match=r"tokenizer of .* has 400 tokens, the model only 100"):
        reference_of(locate(str(bert)), tmp_path)


def test_tokenizer_far_smaller_than_the_model_is_refused(bert: Path, tmp_path: Path) -> None:
    edit_config(bert, vocab_size=30522)
    with pytest.raises(UsageError, match="do not belong together"):
        reference_of(locate(str(bert)), tmp_path)


def test_padding_ids_that_disagree_are_refused_where_positions_count_from_them(tmp_path: Path) -> None:
    folder = zoo.saved_model(tmp_path / "model", "roberta", "embedding")
    edit_config(folder, pad_token_id=0)
    with pytest.raises(UsageError, match="counts positions from padding id 0, but its tokenizer pads with 1"):
        reference_of(locate(str(folder)), tmp_path)


def test_fewer_labels_than_logits_are_refused(bert: Path) -> None:
    edit_config(bert, id2label={"0": "good", "1": "bad"}, label2id={"good": 0, "bad": 1})
    refused(bert, "names 2 labels, its head .* has 3")


def test_missing_labels_are_refused_when_the_head_has_more(bert: Path) -> None:
    edit_config(bert, id2label=None, label2id=None)
    refused(bert, "names 2 labels, its head .* has 3")


def test_a_sequence_beyond_the_positions_is_refused(bert: Path, tmp_path: Path) -> None:
    profile = ShapeProfile(batch=PROFILE.batch, sequence=Range(minimum=1, typical=9, maximum=65))
    with pytest.raises(UsageError, match="Sequence 65 is beyond the 64 positions"):
        reference_of(locate(str(bert)), tmp_path, profile=profile)


def test_roberta_cannot_use_its_first_two_positions(tmp_path: Path) -> None:
    folder = zoo.saved_model(tmp_path / "model", "roberta", "embedding")
    assert locate(str(folder)).positions == 64


def test_a_head_that_was_never_trained_is_refused(bert: Path) -> None:
    edit_weights(bert, lambda state: {name: value for name, value in state.items() if "classifier" not in name})
    refused(bert, "lacks 2 weights that text-classification needs .*random numbers")


def test_a_missing_pooler_matters_only_to_a_head_that_reads_it(bert: Path) -> None:
    edit_weights(bert, lambda state: {name: value for name, value in state.items() if "pooler" not in name})
    refused(bert, "lacks 2 weights .*pooler")
    load_model(locate(str(bert), task_name="embedding"), attention="eager")


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_weights_that_are_no_numbers_are_refused(bert: Path, value: str) -> None:
    edit_weights(
        bert, lambda state: {**state, "bert.pooler.dense.bias": state["bert.pooler.dense.bias"] * float(value)}
    )
    refused(bert, "NaN or infinity, first in bert.pooler.dense.bias", IntegrityError)


def test_a_config_with_too_few_layers_is_refused(bert: Path) -> None:
    edit_config(bert, num_hidden_layers=1)
    refused(bert, "says 1 layers, but the checkpoint holds more .*layer.1.")


def test_a_config_with_too_many_layers_is_refused(bert: Path) -> None:
    edit_config(bert, num_hidden_layers=3)
    refused(bert, "says 3 layers, but the checkpoint lacks 16 weights")


def test_a_config_with_another_width_is_refused(bert: Path) -> None:
    edit_config(bert, intermediate_size=48)
    refused(bert, "does not describe its weights")


@pytest.mark.parametrize("model_type", ["my-model", "bert"])
def test_remote_code_is_refused_even_if_the_model_type_is_known(bert: Path, model_type: str) -> None:
    edit_config(bert, model_type=model_type, auto_map={"AutoModel": "modeling.MyModel"})
    (bert / "modeling.py").write_text("raise SystemExit('remote code ran')")
    refused(bert, "needs code of its own .* never run")
    assert load_model(locate(str(bert), family_name="bert"), attention="eager").config.model_type == "bert"


def test_a_pickle_that_would_run_code_is_refused(bert: Path, tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "ran",))

    (bert / "model.safetensors").unlink()
    (bert / "pytorch_model.bin").write_bytes(pickle.dumps({"weight": Evil()}))
    refused(bert, "pickle that wants to run code")
    assert not (tmp_path / "ran").exists()


def test_a_plain_pickle_of_weights_is_read(bert: Path) -> None:
    import torch
    from safetensors.torch import load_file

    torch.save(load_file(bert / "model.safetensors"), bert / "pytorch_model.bin")
    (bert / "model.safetensors").unlink()
    load_model(locate(str(bert)), attention="eager")


def test_a_truncated_checkpoint_is_refused(bert: Path) -> None:
    path = bert / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    refused(bert, "damaged or cut short", IntegrityError)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_half_precision_checkpoint_is_exported_in_fp32_and_the_manifest_says_so(tmp_path: Path, dtype: str) -> None:
    import torch

    folder = zoo.saved_model(tmp_path / "model", "bert", "embedding")
    edit_weights(folder, lambda state: {name: value.to(getattr(torch, dtype)) for name, value in state.items()})
    edit_config(folder, dtype=dtype)
    graph = exported(locate(str(folder)), tmp_path)
    assert graph.precision == "fp32"
    assert graph.details["checkpoint_dtype"] == dtype
    assert "in fp32" in graph.details["widened"]


def test_a_slow_tokenizer_is_refused(tmp_path: Path) -> None:
    folder = zoo.saved_model(tmp_path / "model", "xlm", "embedding")
    for path in folder.glob("tokenizer*"):
        path.unlink()
    (folder / "vocab.json").write_text(json.dumps(zoo.byte_pairs(("<pad>", "<unk>", "<s>", "</s>", "<mask>"))[0]))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    with pytest.raises((UnavailableError, UsageError), match="tokenizer"):
        reference_of(locate(str(folder)), tmp_path)


def test_zero_shot_without_an_entailment_label_is_refused(bert: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is entailment"):
        reference_of(locate(str(bert), task_name="zero-shot-classification"), tmp_path)
