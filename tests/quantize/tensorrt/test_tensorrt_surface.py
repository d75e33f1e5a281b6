"""What our engine and session code asks of TensorRT must exist in TensorRT 11, which cannot be imported here.

The code is run, not read: every branch that touches TensorRT runs against a stand-in made of the list of its names.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import trimaran
from tests.quantize.tensorrt.fake_gpu import FakeDriver
from tests.quantize.tensorrt.surface import SURFACE, Member, StandIn, names_asked, returning
from trimaran.core.errors import ToolError, UsageError
from trimaran.quantize.tensorrt import engine_process
from trimaran.quantize.tensorrt.engine_process import build_plan
from trimaran.runtime.tensorrt_engine import Engine

PACKAGE = Path(trimaran.__file__).parent
SOURCES = (PACKAGE / "quantize" / "tensorrt" / "engine_process.py", PACKAGE / "runtime" / "tensorrt_engine.py")
# tensorrt_rtx alone has these; plain TensorRT is refused before they are asked for.
RTX_ONLY = {"set_compute_capability", "num_compute_capabilities", "ComputeCapability"}
# Classes of TensorRT have these names as well; in our code they are those of lists and arrays.
PYTHONS_OWN = {"append", "dtype", "shape"}
OPTIONS = {
    "workspace_bytes": 1 << 20,
    "weight_streaming": True,
    "hardware_compatible": "AMPERE_PLUS",
    "optimization_level": 3,
}
RANGE = ((1, 1), (2, 8), (4, 16))


def tensorrt(**changes: Any) -> StandIn:
    """A TensorRT whose builder and runtime do as they are asked; `changes` name answers by Class__name."""
    module = StandIn({})

    def build(builder: Any, network: Any, config: Any) -> bytes:
        logger = builder.arguments[0]
        for severity in (module.ILogger.ERROR, module.ILogger.WARNING, module.ILogger.INFO):
            logger.log(severity, "words")
        config.progress_monitor.phase_start("Building", None, 2)
        assert config.progress_monitor.step_complete("Building", 0)
        config.progress_monitor.phase_finish("Building")
        return b"plan"

    def mode(engine: Any, name: str) -> Any:
        return module.TensorIOMode.OUTPUT if name == "sums" else module.TensorIOMode.INPUT

    module.answers |= {
        "__version__": "11.4.0.106",
        "nptype": lambda dtype: dtype,
        "Builder.create_network": lambda handle, flags: module.make("INetworkDefinition"),
        "Builder.create_builder_config": lambda handle: module.make("IBuilderConfig"),
        "Builder.create_optimization_profile": lambda handle: module.make("IOptimizationProfile"),
        "Builder.build_serialized_network": build,
        "OnnxParser.parse_from_file": returning(True),
        "OnnxParser.num_errors": 1,
        "OnnxParser.get_error": lambda handle, index: module.make("ParserError"),
        "ParserError.desc": returning("false"),
        "ParserError.node_name": returning("last"),
        "ParserError.node_operator": returning("FastGelu"),
        "INetworkDefinition.num_inputs": 1,
        "INetworkDefinition.get_input": lambda handle, index: module.make("ITensor"),
        "ITensor.name": "x",
        "IOptimizationProfile.set_shape": returning(None),
        "IBuilderConfig.add_optimization_profile": returning(0),
        "IBuilderConfig.set_flag": returning(None),
        "IBuilderConfig.clear_flag": returning(None),
        "IBuilderConfig.set_memory_pool_limit": returning(None),
        "IBuilderConfig.create_timing_cache": lambda handle, stored: module.make("ITimingCache"),
        "IBuilderConfig.set_timing_cache": returning(True),
        "ITimingCache.serialize": returning(b"times"),
        "Runtime.deserialize_cuda_engine": lambda handle, plan: module.make("ICudaEngine"),
        "ICudaEngine.create_engine_inspector": lambda handle: module.make("EngineInspector"),
        "EngineInspector.get_engine_information": returning("Layers: none"),
        "ICudaEngine.streamable_weights_size": 1,
        "ICudaEngine.get_weight_streaming_automatic_budget": returning(1),
        "ICudaEngine.num_io_tensors": 2,
        "ICudaEngine.get_tensor_name": lambda handle, index: ("input_ids", "sums")[index],
        "ICudaEngine.get_tensor_mode": mode,
        "ICudaEngine.get_tensor_dtype": returning(np.int64),
        "ICudaEngine.device_memory_size_v2": 64,
        "ICudaEngine.num_optimization_profiles": 1,
        "ICudaEngine.get_tensor_profile_shape": returning(RANGE),
        "ICudaEngine.create_execution_context": lambda handle, strategy: module.make("IExecutionContext"),
        "IExecutionContext.set_device_memory": returning(None),
        "IExecutionContext.set_optimization_profile_async": returning(True),
        "IExecutionContext.set_input_shape": returning(True),
        "IExecutionContext.infer_shapes": returning([]),
        "IExecutionContext.get_tensor_shape": returning((2, 8)),
        "IExecutionContext.set_tensor_address": returning(True),
        "IExecutionContext.execute_async_v3": returning(True),
    }
    for name, answer in changes.items():
        module.answers[name.replace("__", ".")] = answer
    return module


class Run:
    """Our code against stand-ins: the names that it used, and the lines that it ran of each source."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder, self._monkeypatch = folder, monkeypatch
        self.used: set[str] = set()
        self.lines: dict[str, set[int]] = {str(path): set() for path in SOURCES}

    def build(self, module: StandIn, *, replace_cache: bool = False, **options: Any) -> dict[str, Any]:
        self._monkeypatch.setitem(sys.modules, "tensorrt", module)
        self._monkeypatch.setattr(engine_process, "driver_present", lambda: True)
        self._monkeypatch.setattr(engine_process, "Driver", lambda device: None)
        files = {name: str(self._folder / name) for name in ("graph", "plan", "timing_cache", "progress")}
        profiles = [{"x": [[1, 1], [2, 8], [4, 16]]}]
        settings: dict[str, Any] = {**files, "options": OPTIONS | options, "replace_cache": replace_cache}
        return self._traced(module, lambda: build_plan(**settings, runtime="tensorrt", profiles=profiles))

    def infer(self, module: StandIn) -> Any:
        plan = self._folder / "model.plan"
        plan.write_bytes(b"plan")

        def answer() -> Any:
            engine = Engine(str(plan), threads=1, trt=module, driver=FakeDriver())  # type: ignore[arg-type]
            outputs = engine.infer({"input_ids": np.ones((2, 8), np.int64)})
            engine.close()
            return outputs

        return self._traced(module, answer)

    def _traced(self, module: StandIn, call: Callable[[], Any]) -> Any:
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            return call()
        finally:
            sys.settrace(before)
            self.used |= module.used

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        lines = self.lines.get(frame.f_code.co_filename)
        if lines is None:
            return None
        lines.add(frame.f_lineno)
        return self._trace


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Every branch of ours that touches TensorRT, against a TensorRT that has the names of the list and no others."""
    run = Run(tmp_path, monkeypatch)
    assert run.build(tensorrt())["layers"] == ["Layers: none"]
    with pytest.raises(ToolError, match="FastGelu last: not supported"):
        run.build(tensorrt(OnnxParser__parse_from_file=returning(False)))
    with pytest.raises(ToolError, match="built no engine"):
        run.build(tensorrt(Builder__build_serialized_network=returning(None)))
    with pytest.raises(UsageError, match="timing cache"):
        run.build(tensorrt(IBuilderConfig__set_timing_cache=returning(False)))
    with pytest.raises(AttributeError, match=r"no IBuilderConfig\.num_compute_capabilities"):
        run.build(tensorrt(), compute_capabilities=["8.6"])
    assert set(run.infer(tensorrt())) == {"sums"}
    return run


def test_a_timing_cache_of_ours_that_tensorrt_refuses_is_begun_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents: list[bytes] = []
    module = tensorrt()
    module.answers["IBuilderConfig.create_timing_cache"] = lambda handle, stored: (
        contents.append(stored) or module.make("ITimingCache")
    )
    module.answers["IBuilderConfig.set_timing_cache"] = lambda handle, cache, ignore: contents[-1] == b""
    (tmp_path / "timing_cache").write_bytes(b"of another driver")
    Run(tmp_path, monkeypatch).build(module, replace_cache=True)
    assert contents == [b"of another driver", b""]


def null(*arguments: Any) -> Any:
    raise TypeError("pybind11::init(): factory function returned nullptr")


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"Builder": null}, "builder"),
        ({"Builder__create_network": returning(None)}, "network"),
        ({"OnnxParser": null}, "parser"),
        ({"Builder__create_builder_config": returning(None)}, "builder config"),
    ],
    ids=["builder", "network", "parser", "config"],
)
def test_a_null_pointer_of_tensorrt_is_an_error_that_says_what_to_look_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], what: str
) -> None:
    with pytest.raises(ToolError, match=f"tensorrt made no {what}") as caught:
        Run(tmp_path, monkeypatch).build(tensorrt(**changes))
    assert "nvidia-smi" in caught.value.hint


def test_out_of_memory_names_the_request_and_a_workspace_that_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TensorRT's error does not name the cause; the warning before it does."""
    module = tensorrt()

    def build(builder: Any, network: Any, config: Any) -> None:
        logger = builder.arguments[0]
        logger.log(
            module.ILogger.WARNING, "Tactic Device request: 9000MB Available: 4000MB. Device memory is insufficient"
        )
        logger.log(module.ILogger.ERROR, "Could not find any implementation for node {ForeignNode[a...b]}")

    module.answers["Builder.build_serialized_network"] = build
    with pytest.raises(ToolError, match=r"any implementation for node.*Tactic Device request: 9000MB") as caught:
        Run(tmp_path, monkeypatch).build(module)
    assert "--workspace 2000" in caught.value.hint


def test_networks_are_strongly_typed_and_fp32_keeps_all_its_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    module = tensorrt(IBuilderConfig__clear_flag=lambda handle, flag: asked.append(flag.name))
    module.answers["Builder.create_network"] = lambda handle, flags: (
        asked.append(flags) or module.make("INetworkDefinition")
    )
    # In TensorRT 10 the flag's value is 1, and a network without it chooses types by itself.
    monkeypatch.setattr(Member, "__int__", lambda member: 1)
    Run(tmp_path, monkeypatch).build(module)
    assert asked == [1 << 1, "TF32"]


def test_our_code_runs_with_the_names_of_tensorrt_11(run: Run) -> None:
    assert run.used <= SURFACE
    assert {"IExecutionContext.execute_async_v3", "HardwareCompatibilityLevel.AMPERE_PLUS"} <= run.used


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_every_line_that_may_ask_tensorrt_was_run(run: Run, path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    asking = [(node.attr, node.lineno) for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    names = names_asked({name for name, _ in asking}) - RTX_ONLY - PYTHONS_OWN
    assert len(names) > 12, "the walk sees our code"
    assert [entry for entry in asking if entry[0] in names and entry[1] not in run.lines[str(path)]] == []


def test_every_name_exists_in_tensorrt_rtx(run: Run) -> None:
    if importlib.util.find_spec("tensorrt_rtx") is None:
        pytest.skip("tensorrt_rtx is not installed")
    import tensorrt_rtx

    for name in run.used:
        found: object = tensorrt_rtx
        for part in name.split("."):
            assert hasattr(found, part), name
            found = getattr(found, part)


def test_names_that_tensorrt_11_dropped_are_not_in_the_list() -> None:
    assert not SURFACE & {"BuilderFlag.FP16", "BuilderFlag.INT8", "IInt8Calibrator", "QuantizationFlag"}
    assert {"IExecutionContext.execute_async_v3", "HardwareCompatibilityLevel.AMPERE_PLUS"} <= SURFACE


@pytest.mark.parametrize(
    "old",
    [
        lambda trt: trt.BuilderFlag.FP16,
        lambda trt: trt.make("IExecutionContext").execute_async_v2(1),
        lambda trt: setattr(trt.make("IBuilderConfig"), "max_workspace_size", 1),
        lambda trt: trt.IInt8Calibrator,
    ],
    ids=["flag", "method", "setting", "class"],
)
def test_a_name_that_does_not_exist_would_be_found(old: Callable[[StandIn], Any]) -> None:
    with pytest.raises(AttributeError, match="TensorRT 11 has no"):
        old(tensorrt())
