"""Graphs that TensorRT must refuse, with the words of its own parser and builder; and what we make of a crash."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests import children
from tests.quantize.tensorrt.engines import QUIET, World
from trimaran.core.artifact import Artifact
from trimaran.core.errors import ChildError, ToolError, UsageError, ValidationError
from trimaran.core.isolation import Worker
from trimaran.quantize.candidates import candidate
from trimaran.quantize.optimize import optimize
from trimaran.quantize.settings import MakerSettings
from trimaran.quantize.stage import to_precision
from trimaran.quantize.tensorrt import engine as engine_module
from trimaran.quantize.tensorrt.engine_process import build_plan

pytestmark = pytest.mark.usefixtures("rtx")
DEADLINE_S = 120.0
SHAPES = [{"x": [[1, 16], [2, 16], [4, 16]]}]


def build(path: Path, *, profiles: list[Any] = SHAPES, capability: str = "8.6") -> dict[str, Any]:
    with Worker(log=path.with_suffix(".log")) as worker:
        return worker.call(
            build_plan,
            DEADLINE_S,
            graph=str(path),
            plan=str(path.with_suffix(".plan")),
            runtime="tensorrt_rtx",
            profiles=profiles,
            options={"compute_capabilities": [capability]},
        )


def product(path: Path, *, point: int = 0, weight: Any = np.float16, domain: str = "") -> Path:
    """y = (x between Q/DQ) @ w, in FP16: sound as it stands, spoiled by one argument."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "point"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "scale", "point"], ["xd"]),
        helper.make_node("MatMul", ["xd", "w"], ["product"], "product"),
        helper.make_node("Relu" if not domain else "FastGelu", ["product"], ["y"], "last", domain=domain),
    ]
    values = {"scale": np.float16(0.1), "point": np.int8(point), "w": np.ones((16, 16), weight)}
    graph = helper.make_graph(
        nodes,
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT16, ["batch", 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT16, ["batch", 16])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in values.items()],
    )
    opsets = [helper.make_opsetid("", 19), *([helper.make_opsetid(domain, 1)] if domain else ())]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), str(path))
    return path


def test_the_sound_graph_builds(tmp_path: Path) -> None:
    assert build(product(tmp_path / "sound.onnx"))["plan_bytes"] > 0


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        ({"point": 3}, "QuantizeLinear .*Non-zero zero point is not supported"),
        ({"weight": np.float32}, "must have same input types. `A` is of type Half and `B` is of type Float"),
        ({"domain": "com.microsoft"}, "FastGelu last: .*Plugin not found"),
    ],
    ids=["non-zero zero point", "mixed types", "com.microsoft operator"],
)
def test_a_spoiled_graph_is_refused_in_the_parsers_words(tmp_path: Path, spoil: dict[str, Any], words: str) -> None:
    with pytest.raises(ToolError, match=words):
        build(product(tmp_path / "spoiled.onnx", **spoil))


def test_no_profile_is_refused_in_the_builders_words(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="dynamic or shape inputs, but no optimization profile has been defined"):
        build(product(tmp_path / "sound.onnx"), profiles=[])


def test_an_unknown_compute_capability_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot build for compute capability 6\.1.*8\.6"):
        build(product(tmp_path / "sound.onnx"), capability="6.1")


def test_dynamic_int8_of_onnxruntime_is_refused(world: World) -> None:
    with pytest.raises(ToolError, match=r"DynamicQuantizeLinear .*: not supported .*MatMulInteger") as caught:
        world.build(fused(world, "onnxruntime-int8-dynamic"))
    assert Path(caught.value.facts["log"]).is_file()


def test_the_fused_graph_of_onnxruntime_is_refused(world: World) -> None:
    with pytest.raises(ToolError, match=r"EmbedLayerNormalization .*Plugin not found") as caught:
        world.build(fused(world))
    assert str(caught.value.facts["log"]) in str(caught.value)


def fused(world: World, name: str | None = None) -> Artifact:
    graph = optimize(world.exported("bert"), store=world.store, progress=QUIET)
    if name is None:
        return graph
    return to_precision(graph, candidate(name), MakerSettings(), store=world.store, progress=QUIET)


def test_fp32_on_turing_is_refused_in_the_builders_words(world: World) -> None:
    with pytest.raises(ToolError, match="FP32 GEMM is not supported"):
        world.build(world.exported("bert"), compute_capabilities=("7.5",))


def test_an_openvino_artifact_is_no_parent(world: World) -> None:
    parent = world.exported("bert").model_copy(update={"format": "openvino"})
    with pytest.raises(UsageError, match="from an ONNX artifact, not from openvino"):
        world.build(parent)


def test_a_builder_that_crashes_takes_only_its_own_process(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain TensorRT without a driver does just this."""
    call: Callable[..., Any] = engine_module.Worker.call

    def crash(worker: Any, function: Any, deadline_s: float, **arguments: Any) -> Any:
        return call(worker, children.die, DEADLINE_S, number=int(signal.SIGSEGV))

    graph = world.graph("bert", "onnx-fp16")
    monkeypatch.setattr(engine_module.Worker, "call", crash)
    before = sorted(path.name for path in world.store.root.iterdir())
    with pytest.raises(ChildError, match="SIGSEGV"):
        world.build(graph, compute_capabilities=("8.0",))
    assert sorted(path.name for path in world.store.root.iterdir()) == before, "nothing half-made is left"


def test_a_shortfall_fails_and_is_recorded_when_allowed(world: World) -> None:
    """An fp32 graph whose manifest promises fused attention in half."""
    lying = world.exported("bert").model_copy(update={"precision": "fp16"})
    with pytest.raises(ValidationError, match=r"attentions in one Half kernel 0 < 2"):
        world.build(lying, compute_capabilities=("8.6",))
    engine = world.build(lying, compute_capabilities=("8.6",), arguments={"allow_shortfall": True})
    assert not all(check.holds for check in engine.checks)
