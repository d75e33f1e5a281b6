"""The whole graph in FP16 or BF16, except the nodes whose numbers on real text do not fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trimaran.core.artifact import Artifact, Check
from trimaran.core.corpus import shipped_texts, spread
from trimaran.core.distances import max_abs_difference
from trimaran.core.errors import ParityError, ToolError
from trimaran.core.onnx_graph import check_graph
from trimaran.core.onnx_write import write_model
from trimaran.core.scratch import ScratchFolder
from trimaran.quantize.activations import Inputs, calibration_facts, calibration_inputs, largest_magnitudes
from trimaran.quantize.half.half_graph import (
    HALF_TYPES,
    Half,
    HalfType,
    clip_constants,
    constants_to_weights,
    float_values,
    nodes_that_cannot,
    to_half,
)
from trimaran.quantize.half.lowering import lower
from trimaran.quantize.half.opset import raise_opset
from trimaran.quantize.settings import MadeCandidate, MakerSettings
from trimaran.runtime.onnxruntime_engine import Engine

if TYPE_CHECKING:
    import onnx_ir as ir

ENTRY = "model.onnx"
SAMPLES = 64
# Unseen texts may give larger numbers: up to four times those of the texts seen still fit.
HEADROOM = 4.0
CLIPPING_ATOL = 1e-5

# An operator's inner sum can overflow though its result fits. From the largest |input|, the largest |result| and how
# many elements are summed: how large that sum gets.
_INNER_SUM: dict[str, Callable[[float, float, int], float]] = {
    "ReduceL2": lambda largest_input, result, count: result * result,
    "ReduceMean": lambda largest_input, result, count: result * count,
    "ReduceLogSumExp": lambda largest_input, result, count: float(np.exp(min(largest_input, 700.0))),
}


def onnx_fp16(parent: Artifact, folder: Path, settings: MakerSettings) -> MadeCandidate:
    return _make(parent, folder, settings, HALF_TYPES["fp16"])


def onnx_bf16(parent: Artifact, folder: Path, settings: MakerSettings) -> MadeCandidate:
    return _make(parent, folder, settings, HALF_TYPES["bf16"])


def _make(parent: Artifact, folder: Path, settings: MakerSettings, half: HalfType) -> MadeCandidate:
    texts = spread(settings.calibration or shipped_texts("calibration"), SAMPLES)
    inputs = calibration_inputs(parent, texts, samples=SAMPLES)
    model, clipping = prepare(parent, half, inputs, threads=settings.threads)
    kept = overflowing(model, half, inputs, threads=settings.threads)
    to_half(model, half, keep=kept, half_outputs=settings.half_outputs)
    check_types(model)
    write_model(model, folder / ENTRY)
    return MadeCandidate(
        entry=ENTRY,
        checks=(clipping,),
        details={"half": half_facts(model, half.name, kept), "calibration": calibration_facts(texts)},
        output_types=dict.fromkeys(_fp16_outputs(model), "float16") if settings.half_outputs else {},
    )


def _fp16_outputs(model: ir.Model) -> list[str]:
    """An output whose node overflows stays in fp32 even where FP16 outputs were asked for."""
    import onnx_ir as ir

    return [str(output.name) for output in model.graph.outputs if output.dtype == ir.DataType.FLOAT16]


def prepare(parent: Artifact, half: HalfType, inputs: Sequence[Inputs], *, threads: int) -> tuple[ir.Model, Check]:
    """Return the fp32 graph with constants that fit the half type, and the check that it answers as before."""
    import onnx_ir as ir

    model = ir.load(parent.entry_path)
    raise_opset(model)
    lowered = lower(model)
    constants_to_weights(model)
    clipped = clip_constants(model, half)
    worst = _clipping_difference(parent, model, inputs[-4:], threads=threads) if clipped or lowered else 0.0
    if not worst <= CLIPPING_ATOL:
        raise ParityError(
            f"Constants beyond {half.name} ({', '.join(clipped)}) are no mask: without them the fp32 graph differs by "
            f"{worst:.3g}; the limit is {CLIPPING_ATOL:g}.",
            hint="Use bf16, or keep this model in fp32.",
            observed=worst,
            limit=CLIPPING_ATOL,
        )
    detail = f"{len(clipped)} constants clipped to {half.substitute:g}"
    return model, Check(name="max |Δ| by clipped constants", observed=worst, limit=CLIPPING_ATOL, detail=detail)


def overflowing(model: ir.Model, half: HalfType, inputs: Sequence[Inputs], *, threads: int) -> dict[str, str]:
    """Return the nodes to keep in fp32: first output to the reason, which is what real text made of them."""
    floats = float_values(model)
    kept = nodes_that_cannot(model, half, floats)
    results = sorted({str(value.name) for node in model.graph for value in node.outputs if value in floats})
    largest = largest_magnitudes(model, results, inputs, threads=threads)
    summed = _longest_axis(model, inputs)
    limit = half.largest / HEADROOM
    for node in model.graph:
        outputs = [largest[value.name] for value in node.outputs if value in floats]
        if not outputs or node.outputs[0].name in kept:
            continue
        read = [largest[value.name] for value in node.inputs if value is not None and value.name in largest]
        needed = max([*outputs, *read])
        if node.op_type in _INNER_SUM:
            needed = max(needed, _INNER_SUM[node.op_type](max(read, default=0.0), max(outputs), summed))
        if not needed <= limit:
            reason = f"{node.op_type} reached {needed:.3g}; {half.name} is used up to {limit:.4g}"
            kept[node.outputs[0].name] = reason
    return kept


def check_types(model: ir.Model) -> None:
    """Run ONNX's own strict inference, which finds a Float that meets a Half before an engine's parser does."""
    import onnx

    try:
        check_graph(model)
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError) as error:
        raise ToolError(f"The converted graph is not well typed: {str(error).strip().splitlines()[0]}") from error


def half_facts(model: ir.Model, name: Half, kept: Mapping[str, str]) -> dict[str, Any]:
    """Return what the manifest says of the conversion."""
    operators = Counter(node.op_type for node in model.graph)
    return {"type": name, "kept_in_fp32": dict(kept), "nodes": len(model.graph), "casts": operators["Cast"]}


def _clipping_difference(parent: Artifact, model: ir.Model, inputs: Sequence[Inputs], *, threads: int) -> float:
    with ScratchFolder("half") as folder:
        path = Path(folder) / ENTRY
        write_model(model, path)
        before = Engine(str(parent.entry_path), threads=threads)
        after = Engine(str(path), threads=threads)
    worst = 0.0
    for batch in inputs:
        plain, clipped = before.infer(batch), after.infer(batch)
        worst = max(worst, *(max_abs_difference(plain[name], clipped[name]) for name in plain))
    return worst


def _longest_axis(model: ir.Model, inputs: Sequence[Inputs]) -> int:
    """Return the most elements that one reduction can sum: the widest weight or the longest text."""
    shapes = [value.const_value.shape.numpy() for value in model.graph.initializers.values()]
    widest = max((int(shape[-1]) for shape in shapes if shape), default=1)
    return max(widest, *(array.shape[1] for batch in inputs for array in batch.values()))
