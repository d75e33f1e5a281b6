"""A graph of ONNX Runtime that skips padding: the same answers to the last bit in integers, and only where it can."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from tests.quantize.padded_rows import LENGTHS, assert_padding_changes_nothing, padded_inputs
from tests.quantize.tensorrt.engines import QUIET, World
from trimaran.core.onnx_write import write_model
from trimaran.quantize.int8.integer_bound import all_integer
from trimaran.quantize.optimize import optimize
from trimaran.quantize.packed_tokens import pack_saved, pack_tokens
from trimaran.runtime.onnxruntime_engine import Engine

FEATURES = 8
ATTENTION = "com.microsoft.Attention <num_heads = 2> (states, qkv, qkv_bias, mask)"


def layer(
    body: str = "y = Add (states, attended)", *, masked: str = "attention_mask", attention: str = ATTENTION
) -> ir.Model:
    """One attention over a table."""
    proto = onnx.parser.parse_model(
        f"""<ir_version: 9, opset_import: ["": 17, "com.microsoft": 1]>
        g (int64[n, t] input_ids, int64[n, t] {masked}) => (float[n, t, 8] y) {{
            mask = Cast <to = 6> ({masked})
            states = Gather (table, input_ids)
            attended = {attention}
            {body}
        }}"""
    )
    sizes = {"table": (9, FEATURES), "qkv": (FEATURES, 3 * FEATURES), "qkv_bias": (3 * FEATURES,), "w": (FEATURES,) * 2}
    for seed, (name, size) in enumerate(sizes.items()):
        array = np.random.default_rng(seed).normal(size=size).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return ir.from_proto(proto)


def inputs_of(model: ir.Model) -> dict[str, np.ndarray]:
    return padded_inputs(str(value.name) for value in model.graph.inputs)


@pytest.mark.parametrize("family", ["bert", "albert", "distilbert", "roberta"])
def test_a_fused_encoder_in_integers_answers_the_same_to_the_last_bit(
    world: World, tmp_path: Path, family: str
) -> None:
    """With every layer in INT8, beside the plain graph, and each text alone beside all texts together."""
    fused = optimize(world.exported(family), store=world.store, progress=QUIET, threads=1)
    model = all_integer(fused, 63)
    write_model(model, tmp_path / "plain.onnx")
    write_model(model, tmp_path / "packed.onnx")
    assert pack_saved(tmp_path / "packed.onnx")
    packed = ir.load(tmp_path / "packed.onnx")
    operators = [node.op_type for node in packed.graph]
    assert "MultiHeadAttention" in operators
    assert "QAttention" not in operators
    skipping, plain = (Engine(str(tmp_path / f"{name}.onnx"), threads=1) for name in ("packed", "plain"))
    assert_padding_changes_nothing(skipping, plain, inputs_of(packed))


def test_products_see_tokens_and_no_padding(tmp_path: Path) -> None:
    """The product after attention is also an output here: it has as many rows as there are tokens."""
    model = layer("sum = Add (states, attended) p = MatMul (sum, w) y = Add (p, sum)")
    assert pack_tokens(model)
    product = next(node for node in model.graph if node.op_type == "MatMul" and node.inputs[1].name == "w")
    product.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    model.graph.outputs.append(product.outputs[0])
    write_model(model, tmp_path / "model.onnx")
    inputs = inputs_of(model)
    answers = Engine(str(tmp_path / "model.onnx"), threads=1).infer(inputs)
    assert answers[str(product.outputs[0].name)].shape == (sum(LENGTHS), FEATURES)
    assert answers["y"].shape == (*inputs["input_ids"].shape, FEATURES)


def test_a_call_of_nothing_but_padding_is_answered(tmp_path: Path) -> None:
    write_model(layer(), tmp_path / "model.onnx")
    assert pack_saved(tmp_path / "model.onnx", tolerance=1e-6)
    nothing = {"input_ids": np.zeros((2, 3), np.int64), "attention_mask": np.zeros((2, 3), np.int64)}
    assert Engine(str(tmp_path / "model.onnx"), threads=1).infer(nothing)["y"].shape == (2, 3, FEATURES)


def test_what_reads_padding_is_not_packed(tmp_path: Path) -> None:
    """It takes the mean over each text's places, padding too."""
    mixing = "sum = Add (states, attended) mean = ReduceMean <axes = [1]> (sum) y = Sub (sum, mean)"
    write_model(layer(mixing), tmp_path / "model.onnx")
    before = (tmp_path / "model.onnx").read_bytes()
    assert not pack_saved(tmp_path / "model.onnx", tolerance=1e-6)
    assert (tmp_path / "model.onnx").read_bytes() == before


@pytest.mark.parametrize(
    "model",
    [
        layer(masked="shown"),
        layer("y = Mul (states, attended)"),
        layer(attention="Identity (states)"),
        layer(attention=ATTENTION.replace("2>", "2, qkv_hidden_sizes = [8, 8, 8]>")),
    ],
    ids=["no mask", "no residual sum", "no attention", "parts of unlike width"],
)  # fmt: skip
def test_a_graph_that_cannot_be_packed_stays(model: ir.Model) -> None:
    before = [node.op_type for node in model.graph]
    assert not pack_tokens(model)
    assert [node.op_type for node in model.graph] == before
