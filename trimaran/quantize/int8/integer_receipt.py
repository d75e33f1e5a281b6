"""Counts the products on whole numbers that an engine really runs, and fails if they are fewer than expected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trimaran.core.artifact import Check
from trimaran.core.errors import ValidationError
from trimaran.core.scratch import ScratchFolder

NAME = "integer products as run"
# In ONNX Runtime's optimised graph, each of these is one integer matrix product.
SESSION_OPERATORS = (
    "DynamicQuantizeMatMul", "MatMulInteger", "MatMulIntegerToFloat", "QAttention", "QGemm", "QLinearMatMul",
)  # fmt: skip


def session_receipt(path: Path, expected: int, *, threads: int) -> Check:
    """Count them in the graph that a session writes after its own optimisations."""
    import onnx
    import onnxruntime as ort

    with ScratchFolder("receipt") as folder:
        settings = ort.SessionOptions()
        settings.log_severity_level = 3
        settings.intra_op_num_threads = threads
        settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
        settings.optimized_model_filepath = str(Path(folder) / "optimised.onnx")
        ort.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
        graph = onnx.load(settings.optimized_model_filepath, load_external_data=False).graph
    return _receipt(sum(node.op_type in SESSION_OPERATORS for node in graph.node), expected)


def openvino_receipt(path: Path, expected: int, *, threads: int) -> Check:
    """Count the fully connected layers of the compiled model that run in 8 bits."""
    import openvino as ov

    compiled = ov.Core().compile_model(
        str(path), "CPU", {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
    )
    return _receipt(sum(map(_is_integer, compiled.get_runtime_model().get_ops())), expected)


def _is_integer(node: Any) -> bool:
    facts = {
        key: str(value.astype(str))
        for key, value in node.get_rt_info().items()
        if key in ("layerType", "runtimePrecision")
    }
    return facts.get("layerType") == "FullyConnected" and facts.get("runtimePrecision", "").lower() in ("i8", "u8")


def _receipt(products: int, expected: int) -> Check:
    check = Check(name=NAME, observed=products, limit=expected, comparison=">=")
    if not check.holds:
        raise ValidationError(
            f"{products} of {expected} matrix products run on whole numbers.",
            hint="The engine did not take the graph as it was meant; it would be slow. Report it with its version.",
        )
    return check
