"""The versions of a model that compete: one row for each candidate, with the function that makes it."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from trimaran.core.artifact import Artifact
from trimaran.core.errors import UsageError
from trimaran.core.spec import Format, Precision
from trimaran.quantize.float_bound import float_bound
from trimaran.quantize.half.fp16 import onnx_bf16, onnx_fp16
from trimaran.quantize.int8.dynamic import onnxruntime_dynamic
from trimaran.quantize.int8.integer_bound import onnxruntime_bound
from trimaran.quantize.int8.mixed import onnxruntime_static, openvino_mixed
from trimaran.quantize.int8.static import openvino_static
from trimaran.quantize.int8.weights import openvino_dynamic, openvino_weights
from trimaran.quantize.plain import onnx_copy, onnxruntime_float, openvino_ir
from trimaran.quantize.settings import MadeCandidate, MakerSettings
from trimaran.quantize.tensorrt.qdq import tensorrt_int8, tensorrt_int8_attention, tensorrt_int8_full

# Writes a candidate into a folder, from its parent graph.
Maker = Callable[[Artifact, Path, MakerSettings], MadeCandidate]


class MeasuresLowerBound(Protocol):
    """Estimates how fast a candidate can be at best, before it is made: its least time over a rival's, by length.

    `parent` and `rival` are folders of artifacts. It runs in a child process, so it takes and returns JSON.
    """

    def __call__(self, parent: str, rival: str, sequences: Sequence[int], weight_levels: int) -> list[float]: ...


@dataclass(frozen=True)
class Contestant:
    """What a report says of anything that was judged or timed."""

    name: str
    backend: str
    precision: Precision


@dataclass(frozen=True)
class Candidate(Contestant):
    format: Format
    maker: Maker
    # Made from the graph with com.microsoft fusions, which only ONNX Runtime can read.
    fused: bool = False
    # Made with calibration texts.
    calibrated: bool = False
    # Made by a search for the layers that must stay in float, which keeps the gates within a budget of time.
    searched: bool = False
    # Written so that it skips padding, where its graph allows it (`packed_tokens`).
    packed: bool = False
    # If the bound shows that a proven candidate is faster, the search is skipped (for float: the judging).
    lower_bound: MeasuresLowerBound | None = None
    engine_options: tuple[tuple[str, str], ...] = ()
    describe: str = ""
    # Competes when no candidate is named.
    default: bool = True
    # A graph in TensorRT's types, which `deploy --target` prepares.
    for_tensorrt: bool = False
    # Of a TensorRT plan: the candidate whose graph it is built from.
    graph: str = ""
    # Competes on a GPU when no candidate is named.
    on_gpu: bool = False
    # Likewise, on an RTX GPU.
    on_rtx: bool = False

    @property
    def competes_when(self) -> str:
        """Behind its description: when it competes, if not always; empty otherwise."""
        competes = ((self.default, ""), (self.on_gpu, " (on a GPU)"), (self.on_rtx, " (on an RTX GPU)"))
        return next((words for here, words in competes if here), " (when asked for)")


CANDIDATES: dict[str, Candidate] = {
    row.name: row
    for row in (
        Candidate(
            "onnxruntime-fp32", "onnxruntime", "fp32", "onnx", onnxruntime_float,
            lower_bound=float_bound, describe="the exported graph as it is",
        ),
        Candidate(
            "onnxruntime-fused", "onnxruntime", "fp32", "onnx", onnxruntime_float, fused=True,
            lower_bound=float_bound, describe="attention, GELU and layer norms as single kernels",
        ),
        Candidate(
            "onnxruntime-int8-dynamic", "onnxruntime", "int8-dynamic", "onnx",
            onnxruntime_dynamic, fused=True,
            describe="INT8 weights, activations scaled per tensor at run time",
        ),
        Candidate(
            "onnxruntime-int8-static", "onnxruntime", "int8-static", "onnx",
            onnxruntime_static, fused=True, calibrated=True, searched=True, packed=True,
            lower_bound=onnxruntime_bound,
            describe="INT8 weights and activations in integer kernels; in float what the gates ask for",
        ),
        Candidate(
            "openvino-fp32", "openvino", "fp32", "openvino", openvino_ir,
            lower_bound=float_bound, describe="OpenVINO's own graph compiler, float",
        ),
        Candidate(
            "openvino-int8-static", "openvino", "int8-static", "openvino",
            openvino_static, calibrated=True,
            describe="INT8 weights and activations as NNCF makes them: SmoothQuant, calibrated on real text",
            default=False,
        ),
        Candidate(
            "openvino-int8-mixed", "openvino", "int8-static", "openvino",
            openvino_mixed, calibrated=True, searched=True,
            describe="INT8 weights and activations, encodings searched by layer; in float what the gates ask for",
        ),
        Candidate(
            "openvino-int8-weights", "openvino", "int8-weights", "openvino",
            openvino_weights,
            engine_options=(("DYNAMIC_QUANTIZATION_GROUP_SIZE", "32"),),
            describe="INT8 weights, activations scaled per token group at run time",
        ),
        Candidate(
            "openvino-int8-dynamic", "openvino", "int8-dynamic", "openvino",
            openvino_dynamic,
            engine_options=(("DYNAMIC_QUANTIZATION_GROUP_SIZE", str(2**64 - 1)),),
            describe="INT8 weights, activations scaled per token at run time", default=False,
        ),
        Candidate(
            "onnx-fp16", "onnxruntime", "fp16", "onnx", onnx_fp16, calibrated=True,
            describe="FP16 but for what overflows on real text; the graph for TensorRT",
            default=False, for_tensorrt=True,
        ),
        Candidate(
            "onnx-bf16", "openvino", "bf16", "onnx", onnx_bf16, calibrated=True,
            describe="BF16; the graph for TensorRT, which ONNX Runtime's CPU kernels lack",
            default=False, for_tensorrt=True,
        ),
        Candidate(
            "onnx-int8-qdq", "onnxruntime", "int8-static", "onnx", tensorrt_int8,
            calibrated=True, searched=True,
            describe="symmetric Q/DQ on the linear layers that the gates allow, the rest FP16; the graph for TensorRT",
            default=False, for_tensorrt=True,
        ),
        Candidate(
            "onnx-int8-qdq-attention", "onnxruntime", "int8-static", "onnx",
            tensorrt_int8_attention, calibrated=True, searched=True,
            describe="symmetric Q/DQ on linear layers and attention, the rest FP16; the graph for TensorRT",
            default=False, for_tensorrt=True,
        ),
        Candidate(
            "onnx-int8-qdq-full", "onnxruntime", "int8-static", "onnx",
            tensorrt_int8_full,
            calibrated=True, searched=True,
            describe="symmetric Q/DQ on linear layers, attention and residual sums; for TensorRT",
            default=False, for_tensorrt=True,
        ),
        Candidate(
            "onnxruntime-cuda-fp32", "onnxruntime_cuda", "fp32", "onnx", onnx_copy,
            describe="ONNX Runtime on a GPU, nothing heavy on the CPU", default=False,
        ),
        Candidate(
            "onnxruntime-cuda-fp16", "onnxruntime_cuda", "fp16", "onnx", onnx_fp16,
            calibrated=True, describe="ONNX Runtime on a GPU in FP16, nothing heavy on the CPU", default=False,
            on_gpu=True,
        ),
        Candidate(
            "tensorrt-fp16", "tensorrt", "fp16", "tensorrt", onnx_fp16, calibrated=True, graph="onnx-fp16",
            describe="TensorRT's plan of onnx-fp16, built on the GPU", default=False, on_gpu=True,
        ),
        Candidate(
            "tensorrt-bf16", "tensorrt", "bf16", "tensorrt", onnx_bf16, calibrated=True, graph="onnx-bf16",
            describe="TensorRT's plan of onnx-bf16, built on the GPU", default=False, on_gpu=True,
        ),
        Candidate(
            "tensorrt-int8", "tensorrt", "int8-static", "tensorrt", tensorrt_int8,
            calibrated=True, searched=True, graph="onnx-int8-qdq",
            describe="TensorRT's plan of onnx-int8-qdq, built on the GPU", default=False, on_gpu=True,
        ),
        Candidate(
            "tensorrt-int8-attention", "tensorrt", "int8-static", "tensorrt", tensorrt_int8_attention,
            calibrated=True, searched=True, graph="onnx-int8-qdq-attention",
            describe="TensorRT's plan of onnx-int8-qdq-attention, built on the GPU", default=False, on_gpu=True,
        ),
        Candidate(
            "tensorrt-int8-full", "tensorrt", "int8-static", "tensorrt", tensorrt_int8_full,
            calibrated=True, searched=True, graph="onnx-int8-qdq-full",
            describe="TensorRT's plan of onnx-int8-qdq-full, built on the GPU", default=False,
        ),
        Candidate(
            "tensorrt-rtx-fp16", "tensorrt_rtx", "fp16", "tensorrt", onnx_fp16, calibrated=True, graph="onnx-fp16",
            describe="TensorRT for RTX: the plan of onnx-fp16", default=False, on_rtx=True,
        ),
        Candidate(
            "tensorrt-rtx-int8", "tensorrt_rtx", "int8-static", "tensorrt", tensorrt_int8,
            calibrated=True, searched=True, graph="onnx-int8-qdq",
            describe="TensorRT for RTX: the plan of onnx-int8-qdq", default=False, on_rtx=True,
        ),
        Candidate(
            "onnxruntime-tensorrt-fp16", "onnxruntime_tensorrt", "fp16", "onnx",
            onnx_fp16,
            calibrated=True, describe="TensorRT inside ONNX Runtime in FP16; in the official container only",
            default=False,
        ),
    )
}  # fmt: skip

# What `deploy --target` makes when no candidate is named; the first of equals is chosen.
PREPARED = ("onnx-fp16", "onnx-bf16", "onnx-int8-qdq")


def candidate(name: str) -> Candidate:
    if name in CANDIDATES:
        return CANDIDATES[name]
    near = difflib.get_close_matches(name, CANDIDATES, n=1)
    hint = f"Did you mean {near[0]}? " if near else ""
    raise UsageError(f"Unknown candidate {name!r}.", hint=f"{hint}Known: {', '.join(CANDIDATES)}.")


def candidates(names: Sequence[str], *, on_gpu: bool = False, on_rtx: bool = False) -> tuple[Candidate, ...]:
    """The named rows in the order asked for, each once; all that compete unasked when none is named."""
    defaults = [
        row.name for row in CANDIDATES.values() if ((row.on_gpu or (on_rtx and row.on_rtx)) if on_gpu else row.default)
    ]
    return tuple(candidate(name) for name in dict.fromkeys(names or defaults))
