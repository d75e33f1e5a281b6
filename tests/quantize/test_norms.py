"""Fused residual norms are split into a sum and a norm: the same answers, and ONNX Runtime leaves them split."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from trimaran.core.onnx_write import write_model
from trimaran.quantize.norms import split_skip_norms
from trimaran.runtime.onnxruntime_engine import Engine

INPUTS = {name: np.random.default_rng(seed).normal(size=(2, 3, 8)).astype(np.float32) for seed, name in enumerate("xr")}
NORMS = {
    "with a bias": "y = com.microsoft.SkipLayerNormalization <epsilon = 1e-3> (x, r, weight, offset, bias)",
    "without a bias": "y = com.microsoft.SkipLayerNormalization <epsilon = 1e-3> (x, r, weight, offset)",
    "without an offset": "y = com.microsoft.SkipLayerNormalization <epsilon = 1e-3> (x, r, weight)",
    "by the root mean square": "y = com.microsoft.SkipSimplifiedLayerNormalization <epsilon = 1e-3> (x, r, weight)",
    "whose sum is read too": "z, a, b, sum = com.microsoft.SkipLayerNormalization (x, r, weight, offset, bias)"
    " y = Sub (z, sum)",
}


def model_of(body: str) -> ir.Model:
    proto = onnx.parser.parse_model(
        f"""<ir_version: 9, opset_import: ["": 17, "com.microsoft": 1]>
        g (float[n, t, 8] x, float[n, t, 8] r) => (float[n, t, 8] y) {{ {body} }}"""
    )
    for seed, name in enumerate(("weight", "offset", "bias")):
        array = np.random.default_rng(9 + seed).normal(size=8).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return ir.from_proto(proto)


@pytest.mark.parametrize("body", NORMS.values(), ids=NORMS.keys())
def test_a_split_norm_answers_as_the_fused_one(tmp_path: Path, body: str) -> None:
    model = model_of(body)
    write_model(model, tmp_path / "fused.onnx")
    assert split_skip_norms(model) == 1
    assert not [node.op_type for node in model.graph if node.op_type.startswith("Skip")]
    write_model(model, tmp_path / "split.onnx")
    fused, split = (Engine(str(tmp_path / name), threads=1).infer(INPUTS)["y"] for name in ("fused.onnx", "split.onnx"))
    np.testing.assert_allclose(split, fused, rtol=0, atol=2e-6)


def test_the_engine_does_not_fuse_them_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime's own optimiser does."""
    model = model_of(NORMS["with a bias"])
    split_skip_norms(model)
    write_model(model, tmp_path / "split.onnx")
    settings = ort.SessionOptions()
    settings.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    monkeypatch.setattr(ort, "SessionOptions", lambda: settings)
    Engine(str(tmp_path / "split.onnx"), threads=1)
    assert [node.op_type for node in onnx.load(tmp_path / "optimised.onnx").graph.node] == [
        "Add", "Add", "LayerNormalization",
    ]  # fmt: skip
