"""The whole graph in FP16 or BF16, but for the nodes whose numbers on real text do not fit."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trimaran.core.artifact import Artifact, Check
from trimaran.core.corpus import digest_of_texts, shipped_texts, spread
from trimaran.core.errors import ParityError, ToolError
from trimaran.core.onnx_graph import save_graph
from trimaran.core.parity import max_abs_difference
from trimaran.quantize.activations import (
    Inputs,
    calibration_inputs,
    float_tensors,
    largest_magnitudes,
    without_weights,
)
from trimaran.quantize.half.half_graph import (
    HALF_TYPES,
    Half,
    HalfType,
    clip_constants,
    constants_to_initializers,
    nodes_that_cannot,
    to_half,
)
from trimaran.quantize.half.opset import raise_opset
from trimaran.quantize.settings import Made, Settings
from trimaran.runtime.onnxruntime_engine import Engine

ENTRY = "model.onnx"
SAMPLES = 64
# The texts seen are a sample: numbers up to four times theirs still fit.
HEADROOM = 4.0
CLIPPING_ATOL = 1e-5

# What an operator sums inside can overflow though its result fits: (|in|, |out|, summed elements) -> that sum.
_INNER: dict[str, Callable[[float, float, int], float]] = {
    "ReduceL2": lambda given, result, count: result * result,
    "ReduceMean": lambda given, result, count: result * count,
    "ReduceLogSumExp": lambda given, result, count: float(np.exp(min(given, 700.0))),
}


def onnx_fp16(parent: Artifact, folder: Path, settings: Settings) -> Made:
    return _make(parent, folder, settings, HALF_TYPES["fp16"])


def onnx_bf16(parent: Artifact, folder: Path, settings: Settings) -> Made:
    return _make(parent, folder, settings, HALF_TYPES["bf16"])


def _make(parent: Artifact, folder: Path, settings: Settings, half: HalfType) -> Made:
    texts = spread(settings.calibration or shipped_texts("calibration"), SAMPLES)
    inputs = calibration_inputs(parent, texts, samples=SAMPLES)
    model, prepared = prepare(parent, half, inputs, threads=settings.threads)
    kept = overflowing(model, half, inputs, threads=settings.threads)
    to_half(model, half, keep=kept, half_outputs=settings.half_outputs)
    check_types(model)
    save_graph(model, folder / ENTRY)
    return Made(
        entry=ENTRY,
        checks=(prepared,),
        details={
            "half": half_facts(model, half.name, kept),
            "calibration": {"texts": len(texts), "digest": digest_of_texts(texts)},
        },
        output_types=dict.fromkeys(half_outputs(model), "float16") if settings.half_outputs else {},
    )


def half_outputs(model: Any) -> list[str]:
    """Outputs in FP16; one whose node overflows stays in fp32 even where halves were asked for."""
    import onnx

    half = onnx.TensorProto.FLOAT16
    return [output.name for output in model.graph.output if output.type.tensor_type.elem_type == half]


def prepare(parent: Artifact, half: HalfType, inputs: Sequence[Inputs], *, threads: int) -> tuple[Any, Check]:
    """The fp32 graph with constants that fit the half type, proven to answer as before."""
    import onnx

    model = onnx.load(str(parent.entry_path))
    raise_opset(model)
    constants_to_initializers(model)
    clipped = clip_constants(model, half)
    worst = _clipping_difference(parent, model, inputs[-4:], threads=threads) if clipped else 0.0
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


def overflowing(model: Any, half: HalfType, inputs: Sequence[Inputs], *, threads: int) -> dict[str, str]:
    """Nodes to keep in fp32, by their first output, with the reason: what real text made of them."""
    floats = float_tensors(model)
    kept = nodes_that_cannot(model, half, floats)
    weights = {tensor.name for tensor in model.graph.initializer}
    inner = sorted({name for node in model.graph.node for name in node.output if name in floats})
    largest = largest_magnitudes(model, inner, inputs, threads=threads)
    sizes = _axis_size(model, inputs)
    limit = half.largest / HEADROOM
    for node in model.graph.node:
        results = [name for name in node.output if name in floats]
        if not results or node.output[0] in kept:
            continue
        result = max(largest[name] for name in results)
        given = max((largest[name] for name in node.input if name in largest and name not in weights), default=0.0)
        inner_sum = _INNER.get(node.op_type)
        needs = max(result, given, inner_sum(given, result, sizes) if inner_sum else 0.0)
        if not needs <= limit:
            kept[node.output[0]] = f"{node.op_type} reached {needs:.3g}; {half.name} is used up to {limit:.4g}"
    return kept


def check_types(model: Any) -> None:
    """ONNX's own strict inference: a Float that meets a Half is found here and not by an engine's parser."""
    import onnx

    try:
        onnx.shape_inference.infer_shapes(without_weights(model), check_type=True, strict_mode=True)
    except onnx.shape_inference.InferenceError as error:
        raise ToolError(f"The converted graph is not well typed: {str(error).strip().splitlines()[0]}") from error


def half_facts(model: Any, name: Half, kept: Mapping[str, str]) -> dict[str, Any]:
    """What the manifest says of the conversion."""
    operators = Counter(node.op_type for node in model.graph.node)
    return {"type": name, "kept_in_fp32": dict(kept), "nodes": len(model.graph.node), "casts": operators["Cast"]}


def _clipping_difference(parent: Artifact, model: Any, inputs: Sequence[Inputs], *, threads: int) -> float:
    with tempfile.TemporaryDirectory(prefix="trimaran-") as folder:
        path = Path(folder) / ENTRY
        save_graph(model, path)
        before = Engine(str(parent.entry_path), threads=threads)
        after = Engine(str(path), threads=threads)
    worst = 0.0
    for batch in inputs:
        wanted, found = before.infer(batch), after.infer(batch)
        worst = max(worst, *(max_abs_difference(wanted[name], found[name]) for name in wanted))
    return worst


def _axis_size(model: Any, inputs: Sequence[Inputs]) -> int:
    """The most elements that one reduction can sum: the widest weight or the longest text."""
    widest = max((int(dim) for tensor in model.graph.initializer for dim in tensor.dims[-1:]), default=1)
    return max(widest, *(array.shape[1] for batch in inputs for array in batch.values()))
