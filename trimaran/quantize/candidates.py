"""The versions of a model that compete: one row a candidate, made by one function of `quantize`."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from trimaran.core.errors import UsageError
from trimaran.core.spec import Format, Precision


@dataclass(frozen=True)
class Candidate:
    """`maker` is `module:function(parent, folder, settings) -> (entry, checks, details)`; `fused` asks for the
    graph with com.microsoft fusions as parent, which only ONNX Runtime can read; `default` rows compete unasked;
    `searched` ones are made to keep the gates asked for, within a budget of time; `bound` is
    `module:function(parent, rival, sequences, weight_levels) -> ratios`, the time that such a one takes at best over
    that of a rival: where the rival keeps the gates and is no slower, the search is spared, or in float, for a large
    model, the judging.
    """

    name: str
    backend: str
    precision: Precision
    format: Format
    maker: str
    fused: bool = False
    calibrated: bool = False
    searched: bool = False
    bound: str = ""
    engine_options: tuple[tuple[str, str], ...] = ()
    describe: str = ""
    default: bool = True


_FLOAT_BOUND = "trimaran.quantize.float_bound:float_bound"
CANDIDATES: dict[str, Candidate] = {
    row.name: row
    for row in (
        Candidate(
            "onnxruntime-fp32", "onnxruntime", "fp32", "onnx", "trimaran.quantize.plain:onnx_copy",
            bound=_FLOAT_BOUND, describe="the exported graph as it is",
        ),
        Candidate(
            "onnxruntime-fused", "onnxruntime", "fp32", "onnx", "trimaran.quantize.plain:onnx_copy", fused=True,
            bound=_FLOAT_BOUND, describe="attention, GELU and layer norms as single kernels",
        ),
        Candidate(
            "onnxruntime-int8-dynamic", "onnxruntime", "int8-dynamic", "onnx",
            "trimaran.quantize.int8.dynamic:onnxruntime_dynamic", fused=True,
            describe="INT8 weights, activations scaled per tensor at run time",
        ),
        Candidate(
            "onnxruntime-int8-static", "onnxruntime", "int8-static", "onnx",
            "trimaran.quantize.int8.mixed:onnxruntime_static", fused=True, calibrated=True, searched=True,
            bound="trimaran.quantize.int8.integer_bound:onnxruntime_bound",
            describe="INT8 weights and activations in integer kernels; in float what the gates ask for",
        ),
        Candidate(
            "openvino-fp32", "openvino", "fp32", "openvino", "trimaran.quantize.plain:openvino_ir",
            bound=_FLOAT_BOUND, describe="OpenVINO's own graph compiler, float",
        ),
        Candidate(
            "openvino-int8-static", "openvino", "int8-static", "openvino",
            "trimaran.quantize.int8.static:openvino_static", calibrated=True,
            describe="INT8 weights and activations as NNCF makes them: SmoothQuant, calibrated on real text",
            default=False,
        ),
        Candidate(
            "openvino-int8-mixed", "openvino", "int8-static", "openvino",
            "trimaran.quantize.int8.mixed:openvino_mixed", calibrated=True, searched=True,
            describe="INT8 weights and activations, encodings searched by layer; in float what the gates ask for",
        ),
        Candidate(
            "openvino-int8-weights", "openvino", "int8-weights", "openvino",
            "trimaran.quantize.int8.weights:openvino_weights",
            engine_options=(("DYNAMIC_QUANTIZATION_GROUP_SIZE", "32"),),
            describe="INT8 weights, activations scaled per token group at run time",
        ),
        Candidate(
            "openvino-int8-dynamic", "openvino", "int8-dynamic", "openvino",
            "trimaran.quantize.int8.weights:openvino_dynamic",
            engine_options=(("DYNAMIC_QUANTIZATION_GROUP_SIZE", str(2**64 - 1)),),
            describe="INT8 weights, activations scaled per token at run time", default=False,
        ),
        Candidate(
            "onnx-fp16", "onnxruntime", "fp16", "onnx", "trimaran.quantize.half.fp16:onnx_fp16", calibrated=True,
            describe="FP16 but for what overflows on real text; the graph for TensorRT", default=False,
        ),
        Candidate(
            "onnx-bf16", "openvino", "bf16", "onnx", "trimaran.quantize.half.fp16:onnx_bf16", calibrated=True,
            describe="BF16; the graph for TensorRT, which ONNX Runtime's CPU kernels lack", default=False,
        ),
        Candidate(
            "onnx-int8-qdq", "onnxruntime", "int8-static", "onnx", "trimaran.quantize.tensorrt.qdq:tensorrt_int8",
            calibrated=True, describe="symmetric Q/DQ on linear layers, the rest FP16; the graph for TensorRT",
            default=False,
        ),
        Candidate(
            "onnx-int8-qdq-attention", "onnxruntime", "int8-static", "onnx",
            "trimaran.quantize.tensorrt.qdq:tensorrt_int8_attention", calibrated=True,
            describe="symmetric Q/DQ on linear layers and attention, the rest FP16; the graph for TensorRT",
            default=False,
        ),
        Candidate(
            "onnx-int8-qdq-full", "onnxruntime", "int8-static", "onnx",
            "trimaran.quantize.tensorrt.qdq:tensorrt_int8_full",
            calibrated=True, describe="symmetric Q/DQ on linear layers, attention and residual sums; for TensorRT",
            default=False,
        ),
        Candidate(
            "onnxruntime-cuda-fp32", "onnxruntime_cuda", "fp32", "onnx", "trimaran.quantize.plain:onnx_copy",
            describe="ONNX Runtime on a GPU, nothing on the CPU", default=False,
        ),
        Candidate(
            "onnxruntime-cuda-fp16", "onnxruntime_cuda", "fp16", "onnx", "trimaran.quantize.half.fp16:onnx_fp16",
            calibrated=True, describe="ONNX Runtime on a GPU in FP16, nothing on the CPU", default=False,
        ),
        Candidate(
            "onnxruntime-tensorrt-fp16", "onnxruntime_tensorrt", "fp16", "onnx",
            "trimaran.quantize.half.fp16:onnx_fp16",
            calibrated=True, describe="TensorRT inside ONNX Runtime in FP16, nothing on the CPU", default=False,
        ),
    )
}  # fmt: skip


def candidate(name: str) -> Candidate:
    if name in CANDIDATES:
        return CANDIDATES[name]
    near = difflib.get_close_matches(name, CANDIDATES, n=1)
    hint = f"Did you mean {near[0]}? " if near else ""
    raise UsageError(f"Unknown candidate {name!r}.", hint=f"{hint}Known: {', '.join(CANDIDATES)}.")


def candidates(names: Sequence[str]) -> tuple[Candidate, ...]:
    """The named rows in the order asked for, each once; all that compete unasked when none is named."""
    defaults = [row.name for row in CANDIDATES.values() if row.default]
    return tuple(candidate(name) for name in dict.fromkeys(names or defaults))
