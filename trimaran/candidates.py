"""The versions of a model that compete: one row a candidate, made by one function of `quantize`."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from trimaran.errors import UsageError
from trimaran.spec import Format, Precision


@dataclass(frozen=True)
class Candidate:
    """`maker` is `module:function(parent, folder, settings) -> (entry, checks, details)`; `fused` asks for the
    graph with com.microsoft fusions as parent, which only ONNX Runtime can read.
    """

    name: str
    backend: str
    precision: Precision
    format: Format
    maker: str
    fused: bool = False
    calibrated: bool = False
    engine_options: tuple[tuple[str, str], ...] = ()
    describe: str = ""


CANDIDATES: dict[str, Candidate] = {
    row.name: row
    for row in (
        Candidate(
            "onnxruntime-fp32", "onnxruntime", "fp32", "onnx", "trimaran.quantize.plain:onnx_copy",
            describe="the exported graph as it is",
        ),
        Candidate(
            "onnxruntime-fused", "onnxruntime", "fp32", "onnx", "trimaran.quantize.plain:onnx_copy", fused=True,
            describe="attention, GELU and layer norms as single kernels",
        ),
        Candidate(
            "onnxruntime-int8-dynamic", "onnxruntime", "int8-dynamic", "onnx",
            "trimaran.quantize.int8_dynamic:onnxruntime_dynamic", fused=True,
            describe="INT8 weights, activations scaled per tensor at run time",
        ),
        Candidate(
            "openvino-fp32", "openvino", "fp32", "openvino", "trimaran.quantize.plain:openvino_ir",
            describe="OpenVINO's own graph compiler, float",
        ),
        Candidate(
            "openvino-int8-static", "openvino", "int8-static", "openvino",
            "trimaran.quantize.int8_static:openvino_static", calibrated=True,
            describe="INT8 weights and activations, SmoothQuant, calibrated on real text",
        ),
        Candidate(
            "openvino-int8-weights", "openvino", "int8-weights", "openvino",
            "trimaran.quantize.int8_weights:openvino_weights",
            engine_options=(("DYNAMIC_QUANTIZATION_GROUP_SIZE", "64"),),
            describe="INT8 weights, activations scaled per token group at run time",
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
    """The named rows in the order asked for, each once; all of them when none is named."""
    return tuple(candidate(name) for name in dict.fromkeys(names or CANDIDATES))
