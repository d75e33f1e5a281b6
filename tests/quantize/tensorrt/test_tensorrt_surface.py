"""What our engine and session code asks of TensorRT must exist in TensorRT 11, which cannot be imported here."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import pytest

import trimaran

PACKAGE = Path(trimaran.__file__).parent
SURFACE = {
    name
    for name in (Path(__file__).parent / "tensorrt_surface.txt").read_text(encoding="utf-8").splitlines()
    if name and not name.startswith("#")
}
SOURCES = (PACKAGE / "quantize" / "tensorrt" / "engine_process.py", PACKAGE / "runtime" / "tensorrt_engine.py")
# Variables of our code, and the TensorRT class that they hold.
HOLDS = {
    "builder": "Builder", "network": "INetworkDefinition", "parser": "OnnxParser", "config": "IBuilderConfig",
    "profile": "IOptimizationProfile", "context": "IExecutionContext", "_context": "IExecutionContext",
    "_engine": "ICudaEngine", "engine": "ICudaEngine", "_runtime": "Runtime", "cache": "ITimingCache",
    "error": "ParserError",
}  # fmt: skip
# tensorrt_rtx alone has these; our code asks for them only after hasattr.
RTX_ONLY = {"IBuilderConfig.set_compute_capability", "IBuilderConfig.num_compute_capabilities"}


def dotted(node: ast.expr) -> list[str]:
    """`trt.ILogger.ERROR` as its parts; empty for what is no plain chain of names."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.insert(0, node.attr)
        node = node.value
    return [node.id, *parts] if isinstance(node, ast.Name) else []


def asked_of_tensorrt(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Attribute):
            continue
        parts = dotted(node)
        if parts[:1] == ["self"]:
            parts = parts[1:]
        if len(parts) < 2:
            continue
        if parts[0] in ("trt", "_trt"):
            found.add(".".join(parts[1:]))
        elif parts[0] in HOLDS:
            found.add(f"{HOLDS[parts[0]]}.{parts[1]}")
    return {name for name in found if not name.split(".")[-1].startswith("__") or name == "__version__"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_every_name_exists_in_tensorrt_11(path: Path) -> None:
    asked = asked_of_tensorrt(path)
    assert len(asked) > 12, "the walk sees our code"
    assert asked - SURFACE - RTX_ONLY == set()


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_every_name_exists_in_tensorrt_rtx(path: Path) -> None:
    if importlib.util.find_spec("tensorrt_rtx") is None:
        pytest.skip("tensorrt_rtx is not installed")
    import tensorrt_rtx

    for name in asked_of_tensorrt(path):
        found: object = tensorrt_rtx
        for part in name.split("."):
            assert hasattr(found, part), name
            found = getattr(found, part)


def test_names_that_tensorrt_11_dropped_are_not_in_the_list() -> None:
    assert not SURFACE & {"BuilderFlag.FP16", "BuilderFlag.INT8", "IInt8Calibrator", "QuantizationFlag"}
    assert {"IExecutionContext.execute_async_v3", "HardwareCompatibilityLevel.AMPERE_PLUS"} <= SURFACE


def test_a_name_that_does_not_exist_would_be_found(tmp_path: Path) -> None:
    source = tmp_path / "old.py"
    source.write_text("config.set_flag(trt.BuilderFlag.FP16)\nself._context.execute_async_v2(1)\n", encoding="utf-8")
    assert asked_of_tensorrt(source) - SURFACE >= {"BuilderFlag.FP16", "IExecutionContext.execute_async_v2"}
