from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

from tests.quantize.half.chains import chain
from trimaran.core.errors import ToolError
from trimaran.core.onnx_write import write_model
from trimaran.quantize.half.opset import raise_opset
from trimaran.runtime.onnxruntime_engine import Engine


def test_raising_the_opset_keeps_the_answers(tmp_path: Path) -> None:
    node = helper.make_node("ReduceMean", ["x"], ["y"], axes=[1], keepdims=0)
    model = chain(node, opset=17, reduced=True)
    assert raise_opset(model) == 19
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    write_model(model, tmp_path / "raised.onnx")
    found = Engine(str(tmp_path / "raised.onnx"), threads=1).infer({"x": np.array([[1, 3]], np.float32)})
    assert found["y"].tolist() == [2.0]
    with pytest.raises(ToolError, match="opset 17 or newer is wanted, found 11"):
        raise_opset(chain(node, opset=11))
