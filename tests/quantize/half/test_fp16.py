from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.quantize.half.chains import chain
from tests.quantize.tensorrt.engines import CALIBRATION, QUIET, TASKS, World
from trimaran.core.artifact import Artifact
from trimaran.core.corpus import encoder_of
from trimaran.core.distances import cosine_distances
from trimaran.core.errors import ToolError, UsageError
from trimaran.quantize.candidates import CANDIDATES, candidate, candidates
from trimaran.quantize.half.fp16 import check_types, overflowing
from trimaran.quantize.half.half_graph import HALF_TYPES
from trimaran.quantize.settings import MakerSettings
from trimaran.quantize.stage import to_precision
from trimaran.runtime.onnxruntime_engine import Engine
from trimaran.runtime.openvino_engine import Engine as OpenvinoEngine

FP16, BF16 = HALF_TYPES["fp16"], HALF_TYPES["bf16"]


def answers(artifact: Artifact, engine: Any = Engine) -> Any:
    encoder = encoder_of(artifact)
    rows = encoder.rows(CALIBRATION[:4])
    return next(iter(engine(str(artifact.entry_path), threads=1).infer(encoder.batch(rows)).values()))


@pytest.mark.parametrize("family", TASKS)
def test_fp16_answers_like_fp32(world: World, family: str) -> None:
    wanted, found = answers(world.exported(family)), answers(world.graph(family, "onnx-fp16"))
    assert found.dtype == np.float32
    assert cosine_distances(wanted, found).max() < 1e-5


def test_bf16_answers_like_fp32_to_its_eight_bits(world: World) -> None:
    wanted = answers(world.exported("bert"))
    found = answers(world.graph("bert", "onnx-bf16"), OpenvinoEngine)
    assert cosine_distances(wanted, found).max() < 1e-3


def test_the_whole_graph_is_half(world: World) -> None:
    model = onnx.load(str(world.graph("bert", "onnx-fp16").entry_path))
    wide = [tensor.name for tensor in model.graph.initializer if tensor.data_type == TensorProto.FLOAT]
    assert len(wide) <= 4, "only the smallest numbers of the pooling stay in fp32"
    assert {value.type.tensor_type.elem_type for value in model.graph.input} == {TensorProto.INT64}
    assert model.graph.output[0].type.tensor_type.elem_type == TensorProto.FLOAT


def test_what_overflows_on_real_numbers_stays_in_fp32_and_says_so() -> None:
    model = chain(helper.make_node("Mul", ["x", "big"], ["y"], "grow"), constants={"big": 1000.0})
    quiet = overflowing(model, FP16, [{"x": np.ones((1, 2), np.float32)}], threads=1)
    loud = overflowing(model, FP16, [{"x": np.full((1, 2), 90.0, np.float32)}], threads=1)
    assert quiet == {}
    assert loud == {"y": "Mul reached 9e+04; fp16 is used up to 1.638e+04"}
    assert overflowing(model, BF16, [{"x": np.full((1, 2), 90.0, np.float32)}], threads=1) == {}


def test_a_norm_whose_inner_sum_overflows_stays_in_fp32() -> None:
    node = helper.make_node("ReduceL2", ["x", "axes"], ["y"], keepdims=0)
    model = chain(node, constants={"axes": np.array([1], np.int64)}, reduced=True)
    kept = overflowing(model, FP16, [{"x": np.full((1, 2), 200.0, np.float32)}], threads=1)
    assert list(kept) == ["y"], "the norm is 283, its sum of squares 80 000"


def test_answers_are_halves_when_asked_and_the_signature_says_so(world: World) -> None:
    parent, settings = world.exported("bert"), MakerSettings(calibration=CALIBRATION, half_outputs=True)
    made = to_precision(parent, candidate("onnx-fp16"), settings, store=world.store, progress=QUIET)
    assert [spec.dtype for spec in made.signature.outputs] == ["float16"]
    assert answers(made).dtype == np.float16
    assert made.digest != world.graph("bert", "onnx-fp16").digest
    with pytest.raises(UsageError, match="openvino-fp32 is fp32"):
        to_precision(parent, candidate("openvino-fp32"), settings, store=world.store, progress=QUIET)


def test_a_constant_that_vanishes_keeps_its_node_in_fp32() -> None:
    model = chain(helper.make_node("Max", ["x", "tiny"], ["y"]), constants={"tiny": 1e-12})
    assert "zero in fp16" in overflowing(model, FP16, [{"x": np.ones((1, 2), np.float32)}], threads=1)["y"]


def test_a_float_that_meets_a_half_is_found_before_any_engine_sees_it() -> None:
    model = chain(helper.make_node("Add", ["x", "half"], ["y"]), constants={"half": np.float16(1)})
    with pytest.raises(ToolError, match="not well typed"):
        check_types(model)


def test_a_fused_operator_is_refused() -> None:
    model = chain(helper.make_node("Gelu", ["x"], ["y"], domain="com.microsoft"))
    model.graph.opset_imports["com.microsoft"] = 1
    with pytest.raises(ToolError, match="not the fused one"):
        overflowing(model, FP16, [], threads=1)


def test_gpu_candidates_do_not_compete_unasked() -> None:
    assert {row.backend for row in candidates(())} == {"onnxruntime", "openvino"}
    assert not [row.name for row in candidates(()) if row.precision in ("fp16", "bf16") or "qdq" in row.name]
    assert candidates(("onnx-fp16",)) == (CANDIDATES["onnx-fp16"],)


def test_same_recipe_gives_the_same_graph(world: World, tmp_path: Path) -> None:
    from trimaran.core.artifact import sha256_of
    from trimaran.quantize.half.fp16 import onnx_fp16

    onnx_fp16(world.exported("bert"), tmp_path, MakerSettings(calibration=CALIBRATION))
    first = world.graph("bert", "onnx-fp16")
    assert sha256_of(tmp_path / "model.onnx") == sha256_of(first.entry_path)
    assert math.isfinite(float(first.checks[0].observed))
