from __future__ import annotations

from pathlib import Path

import pytest

from trimaran.core.errors import ValidationError
from trimaran.quantize.tensorrt.engine_receipt import (
    ExpectedKernels,
    kernel_counts,
    parse_layers,
    receipt,
    refuse_shortfall,
)

_TENSOR = "{{ Name: t, Dimensions: [-1,32], Strides: [32,1], StrideOrder: [1,0], Datatype: {}, Format: (Linear) Row }}"


def line(name: str, kind: str, reads: str, writes: str, *nodes: str) -> str:
    """As tensorrt_rtx 1.7.1 writes it, shortened in the middle."""
    origin = "".join(f"[ONNX Layer: {node}]" for node in nodes)
    constants = f"Constants: [ {_TENSOR.format('Float')}], "
    return (
        f"Name: {name}, LayerType: {kind}, Inputs: [ {_TENSOR.format(reads)}], {constants}"
        f"Outputs: [ {_TENSOR.format(writes)}], TacticName: stub, StreamId: 0, Metadata: {origin}"
    )


TABLE = "\n".join(
    [
        "Layers:",
        "Name: [ShapeHostToDeviceCopy 0], LayerType: ShapeHostToDevice, Inputs: [], Outputs: [ { Name: g, Location: "
        "Device, Datatype: Int64 }], ParameterType: ShapeH2D, TacticValue: 0x0, StreamId: 0, Metadata: ",
        "Name: __mye11007_0_myl1_0, LayerType: shape_call, Inputs: [], Constants: [], Outputs: [], TacticName: , "
        "StreamId: 0, Metadata: ",
        line("value+key+query_myl1_2", "gemm", "Int8", "Half", "value", "key", "query"),
        line("__myl_Move_myl1_3", "kgen", "Half", "Half", "output"),
        line("_gemm_mha_v2_myl1_7", "kgen", "Half", "Int8", "qk", "av"),
        line("output_myl1_9", "gemm", "Int8", "Half", "output"),
        line("__myl_FcAddDivErf_myl1_11", "runtime_fusion", "Half", "Half", "wide", "gelu"),
        "",
        "I/O Tensors:",
        " Name: input_ids, IOMode: Input, DataType: Int64, Dimensions: [-1,-1]",
    ]
)
PROMISED = ExpectedKernels({"Int8": ("value", "key", "query", "output"), "Half": ("wide",)}, attentions=1)


def test_the_table_is_read_line_by_line() -> None:
    layers = parse_layers(TABLE)
    assert [layer.kind for layer in layers] == [
        "ShapeHostToDevice",
        "shape_call",
        "gemm",
        "kgen",
        "kgen",
        "gemm",
        "runtime_fusion",
    ]
    assert layers[2].inputs == ("Int8",) and layers[2].outputs == ("Half",)
    assert layers[2].nodes == ("value", "key", "query"), "three products in one kernel"


def test_what_was_promised_is_found() -> None:
    checks = receipt(PROMISED, [TABLE])
    assert [str(check) for check in checks] == [
        "linear products in Half 1 ≥ 1 in 1 fused-layer table",
        "linear products in Int8 4 ≥ 4 in 1 fused-layer table",
        "attentions in one Half kernel 1 ≥ 1 in 1 fused-layer table",
    ]
    refuse_shortfall(checks, Path("log"))


def test_a_product_in_another_type_is_a_shortfall() -> None:
    checks = receipt(PROMISED, [TABLE.replace("Int8", "Half")])
    with pytest.raises(ValidationError, match=r"linear products in Int8 0 < 4.*The builder's log is build\.log"):
        refuse_shortfall(checks, Path("build.log"))


def test_attention_in_pieces_is_a_shortfall() -> None:
    checks = receipt(PROMISED, [TABLE.replace("_gemm_mha_v2", "_softmax")])
    assert [check.holds for check in checks] == [True, True, False]


def test_int8_attention_is_asked_for_by_its_type() -> None:
    promised = ExpectedKernels(PROMISED.linear, attentions=1, attention_type="Int8")
    assert not receipt(promised, [TABLE])[-1].holds


def test_the_worst_of_several_tables_counts() -> None:
    checks = receipt(PROMISED, [TABLE, TABLE.replace("Int8", "Half")])
    assert not checks[1].holds and "2 fused-layer tables" in checks[1].detail


def test_no_table_is_a_shortfall_and_not_a_pass() -> None:
    assert not any(check.holds for check in receipt(PROMISED, []))


def test_a_pointwise_kernel_that_moves_an_operand_is_no_product() -> None:
    table = TABLE.replace("output_myl1_9, LayerType: gemm", "output_myl1_9, LayerType: kgen")
    assert receipt(PROMISED, [table])[1].observed == 3


def test_the_manifest_keeps_the_counts() -> None:
    assert kernel_counts([TABLE]) == [
        {"kernels": 7, "products": {"Int8": 2, "Half": 1}, "fused_attentions": {"Half": 1}}
    ]


# As public logs of plain TensorRT 10 write the table: with locations, and without types where shapes are dynamic.
PLAIN = """Layers:
Name: Reformatting CopyNode for Input Tensor 0 to /a/Cast, LayerType: Reformat, Inputs: [ { Name: input_ids, Location: Device, Dimensions: [-1,-1], Format/Datatype: Int64 }], Outputs: [ { Name: x, Location: Device, Dimensions: [-1,-1], Format/Datatype: N/A due to dynamic shapes }], ParameterType: Reformat, Origin: REFORMAT, TacticValue: 0x00000000000003e8, StreamId: 0, Metadata:
Name: /layer.0/query/MatMul_myl0_4, LayerType: gemm, Inputs: [ { Name: a, Location: Device, Dimensions: [-1,384], Format/Datatype: Int8 }, { Name: w, Dimensions: [384,384], Format/Datatype: Int8 }], Outputs: [ { Name: b, Location: Device, Dimensions: [-1,384], Format/Datatype: Half }], TacticName: sm80_xmma_gemm, StreamId: 0, Metadata: [ONNX Layer: /layer.0/query/MatMul]
Name: _gemm_mha_v2_myl0_9, LayerType: kgen, Inputs: [ { Name: q, Location: Device, Dimensions: [-1,12,-1,32], Format/Datatype: Half }], Outputs: [ { Name: c, Location: Device, Dimensions: [-1,12,-1,32], Format/Datatype: Half }], TacticName: _gemm_mha_v2_0x1, StreamId: 0, Metadata: [ONNX Layer: /layer.0/MatMul]
"""  # noqa: E501


def test_the_table_of_plain_tensorrt_is_read_as_well() -> None:
    expected = ExpectedKernels({"Int8": ("/layer.0/query/MatMul",)}, attentions=1)
    assert [(check.observed, check.holds) for check in receipt(expected, [PLAIN])] == [(1, True), (1, True)]
    (counts,) = kernel_counts([PLAIN])
    assert counts == {"kernels": 3, "products": {"Int8": 1}, "fused_attentions": {"Half": 1}}
