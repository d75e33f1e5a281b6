"""Tiny literal worlds: an encoder of one embedding table, small enough to check by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from trimaran.core.artifact import Artifact, Draft, Recipe
from trimaran.core.serving_json import Serving, write_serving
from trimaran.core.spec import Range, ShapeProfile, Signature, TensorSpec, TokenizerSpec
from trimaran.core.store import Store

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "cat", "dog", "sat", "ran", "good", "bad")
HIDDEN = 8
PROFILE = ShapeProfile(batch=Range(minimum=1, typical=1, maximum=4), sequence=Range(minimum=1, typical=8, maximum=16))
_IDS = tuple(
    TensorSpec(name=name, dtype="int64", dims=("batch", "sequence")) for name in ("input_ids", "attention_mask")
)
LABELS = ("negative", "neutral", "positive")


def tiny_tokenizer(path: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    tokenizer.save(str(path))


def tiny_serving(version: Path) -> None:
    """The `serving.json` of an embedding model with the tiny tokenizer."""
    write_serving(
        version,
        Serving(
            task="embedding",
            backend="onnxruntime",
            entry="model.onnx",
            rows="alone",
            threads=1,
            labels=(),
            facts={},
            tokenizer=TokenizerSpec(pad_id=0, inputs=("input_ids", "attention_mask")),
            profile=PROFILE,
            engine_options={},
            execution_environment={},
        ),
    )


def tiny_graph(path: Path, *, width: int, output: str) -> None:
    """output = mean over the unmasked tokens of table[input_ids]."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    table = np.random.default_rng(7).standard_normal((len(WORDS), width)).astype(np.float32)
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["tokens"]),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["mask", "last"], ["wide"]),
        helper.make_node("Mul", ["tokens", "wide"], ["kept"]),
        helper.make_node("ReduceSum", ["kept", "one"], ["total"], keepdims=0),
        helper.make_node("ReduceSum", ["mask", "one"], ["count"], keepdims=1),
        helper.make_node("Div", ["total", "count"], [output]),
    ]
    ids = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "sequence"])
        for name in ("input_ids", "attention_mask")
    ]
    graph = helper.make_graph(
        nodes,
        "tiny",
        ids,
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, ["batch", width])],
        [
            numpy_helper.from_array(table, "table"),
            numpy_helper.from_array(np.array([2], np.int64), "last"),
            numpy_helper.from_array(np.array([1], np.int64), "one"),
        ],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(path))


def tiny_artifact(root: Path, *, task: str = "embedding", backend: str = "onnxruntime") -> Artifact:
    """A published ONNX artifact in a store at `root`."""
    output, width = ("embedding", HIDDEN) if task == "embedding" else ("logits", len(LABELS))
    recipe = Recipe(step="tiny", parameters={"task": task, "backend": backend})

    def make(folder: Path) -> Draft:
        tiny_graph(folder / "model.onnx", width=width, output=output)
        tiny_tokenizer(folder / "tokenizer.json")
        return Draft(
            name="tiny",
            format="onnx",
            precision="fp32",
            backend=backend,
            task=task,
            family="bert",
            signature=Signature(
                inputs=_IDS, outputs=(TensorSpec(name=output, dtype="float32", dims=("batch", width)),)
            ),
            profile=PROFILE,
            tokenizer=TokenizerSpec(pad_id=0, inputs=("input_ids", "attention_mask")),
            labels=() if task == "embedding" else LABELS,
            entry="model.onnx",
        )

    return Store(root).produce(recipe, make)
