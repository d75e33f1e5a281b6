"""A graph is written one weight at a time, and reads as it was."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from trimaran.core.onnx_write import write_model
from trimaran.runtime.onnxruntime_engine import Engine


@pytest.mark.parametrize("external_above_bytes", [1 << 30, 0])
def test_a_written_graph_reads_as_it_was(tmp_path: Path, external_above_bytes: int) -> None:
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    generator = np.random.default_rng(0)
    arrays = {
        "table": generator.standard_normal((300, 7)).astype(np.float32),
        "half": generator.standard_normal((2, 3)).astype(np.float16),
        "empty": np.zeros((0, 4), np.float32),
        "scalar": np.array(3, np.int64),
    }
    tensors = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    tensors.append(helper.make_tensor("unpacked", TensorProto.FLOAT, [3], [1.0, 2.5, -3.0]))
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "ids"], ["out"])],
        "a graph",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch"])],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, ["batch", 7])],
        tensors,
        doc_string="words",
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9, producer_name="p")
    path = tmp_path / "model.onnx"
    written = write_model(ir.from_proto(model), path, external_above_bytes=external_above_bytes)
    assert written is (external_above_bytes == 0)
    onnx.checker.check_model(str(path), full_check=True)
    found = onnx.load(str(path))
    for tensor in found.graph.initializer:
        wanted = arrays.get(tensor.name, np.array([1.0, 2.5, -3.0], np.float32))
        np.testing.assert_array_equal(numpy_helper.to_array(tensor), wanted)
        assert list(tensor.dims) == list(wanted.shape)
    for kept in (model, found):
        del kept.graph.initializer[:]
    assert found == model
    ids = np.array([5, 299], np.int64)
    np.testing.assert_array_equal(Engine(str(path), threads=1).infer({"ids": ids})["out"], arrays["table"][ids])


def test_weights_beside_a_graph_are_read_from_there_and_written_inside(tmp_path: Path) -> None:
    import onnx

    proto = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["": 17]> g (float[n, 40] x) => (float[n, 40] y) { y = MatMul (x, weight) }"""
    )
    weight = np.random.default_rng(2).standard_normal((40, 40)).astype(np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, "weight"))
    assert write_model(ir.from_proto(proto), tmp_path / "beside.onnx", external_above_bytes=0)
    model = ir.load(tmp_path / "beside.onnx")
    assert not write_model(model, tmp_path / "inside.onnx")
    assert isinstance(model.graph.initializers["weight"].const_value, ir.ExternalTensor), "the model stays as it was"
    (tmp_path / "model.onnx.data").unlink()
    (tensor,) = onnx.load(str(tmp_path / "inside.onnx")).graph.initializer
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(tensor), weight)
