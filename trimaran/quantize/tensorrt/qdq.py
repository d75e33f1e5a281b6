"""Explicit symmetric INT8 for TensorRT: Q/DQ pairs with zero points of zero, the rest of the graph in FP16.

TensorRT takes precision from the graph. An activation that passes through QuantizeLinear and DequantizeLinear, and then
meets a weight behind a DequantizeLinear of its own, is multiplied in INT8:

    x -> QuantizeLinear -> DequantizeLinear ─┐
                                             MatMul
    int8 weight ------> DequantizeLinear ────┘
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from trimaran.core.artifact import Artifact, Check
from trimaran.core.corpus import answer_context, digest_of_texts, encoder_of, kinds_of, spread
from trimaran.core.distances import Answers, Outputs
from trimaran.core.errors import ToolError
from trimaran.core.isolation import report_progress
from trimaran.core.onnx_graph import add_weight, array_of, new_node
from trimaran.core.onnx_write import write_model
from trimaran.core.proof_effort import effort_for
from trimaran.core.scratch import ScratchFolder
from trimaran.core.tasks import task
from trimaran.judging.sensitivity import KEY, Sensitivity
from trimaran.quantize.activations import calibration_facts, calibration_inputs
from trimaran.quantize.half.fp16 import check_types, half_facts, overflowing, prepare
from trimaran.quantize.half.half_graph import HALF_TYPES, to_half
from trimaran.quantize.int8.mixed import UNFUSED_PAIRS, quick_texts, split_texts
from trimaran.quantize.int8.search import Layers, SearchQuestion, search
from trimaran.quantize.ranges import whole_numbers
from trimaran.quantize.settings import MadeCandidate, MakerSettings
from trimaran.quantize.tensorrt.qdq_scales import (
    LEVELS,
    ScaleChoice,
    activation_scales,
    choose_scales,
    read_instead,
    smooth,
    weight_scale,
)
from trimaran.quantize.tensorrt.qdq_sites import Site, attention_sites, linear_sites, residual_sites
from trimaran.runtime.onnxruntime_engine import Engine
from trimaran.runtime.text import Row, infer_rows

if TYPE_CHECKING:
    import onnx_ir as ir

ENTRY = "model.onnx"
SAMPLES = 128
OVERFLOW_SAMPLES = 33
# Without gates, a layer whose result loses more than this share of each token's energy stays in FP16.
MOST_LOST = 2e-3
_HALF = HALF_TYPES["fp16"]


def tensorrt_int8(parent: Artifact, folder: Path, settings: MakerSettings) -> MadeCandidate:
    """Linear layers in INT8."""
    return _QdqGraph(parent, settings, attention=False, residual=False).make(folder)


def tensorrt_int8_attention(parent: Artifact, folder: Path, settings: MakerSettings) -> MadeCandidate:
    """Linear layers and both attention products in INT8."""
    return _QdqGraph(parent, settings, attention=True, residual=False).make(folder)


def tensorrt_int8_full(parent: Artifact, folder: Path, settings: MakerSettings) -> MadeCandidate:
    """Linear layers, attention products and the skipped side of residual sums in INT8."""
    return _QdqGraph(parent, settings, attention=True, residual=True).make(folder)


class _QdqGraph:
    """A graph with the scales of all its layers, of which any set can stay in FP16."""

    def __init__(self, parent: Artifact, settings: MakerSettings, *, attention: bool, residual: bool) -> None:
        self._parent, self._settings = parent, settings
        self._attention, self._residual = attention, residual
        # Without gates there is nothing to search for, so every text calibrates.
        self._searched = bool(settings.gates)
        calibrating, self._held_out = (
            split_texts(settings.calibration, effort_for(parent.details))
            if self._searched
            else (settings.calibration, [])
        )
        self._texts = spread(calibrating, SAMPLES)
        inputs = calibration_inputs(parent, self._texts, samples=SAMPLES)
        self._model, self._clipping = prepare(parent, _HALF, inputs, threads=settings.threads)
        self._in_fp32 = overflowing(self._model, _HALF, inputs[-OVERFLOW_SAMPLES:], threads=settings.threads)
        # Nobody reads the answers at padding. The last inputs are the padded ones: scales are taken without them.
        self._inputs = inputs[:-1]
        sites = linear_sites(self._model, keep=self._in_fp32)
        self._choices = choose_scales(self._model, sites, self._inputs, threads=settings.threads)

    def make(self, folder: Path) -> MadeCandidate:
        in_half, sensitivity = self._layers_in_half()
        if len(in_half) == len(self._choices):
            raise ToolError(
                f"{self._parent.name} has no linear layer that can be quantised ({len(in_half)} lose too much).",
                hint="Use fp16.",
            )
        model, linear = self._graph(in_half)
        to_half(model, _HALF, keep=self._in_fp32)
        check_types(model)
        write_model(model, folder / ENTRY)
        return MadeCandidate(
            entry=ENTRY,
            checks=(self._clipping, *pair_checks(model, linear=sum(len(site.readers) for site in linear))),
            details={
                "half": half_facts(model, "fp16", self._in_fp32),
                "quantised": {"linear": len(linear), "attention": self._attention, "residual": self._residual},
                "layers": {
                    _name(choice): {**choice.facts(), "type": "fp16" if _name(choice) in in_half else "int8"}
                    for choice in self._choices
                },
                "calibration": calibration_facts(self._texts),
                **({KEY: sensitivity.model_dump(mode="json")} if sensitivity else {}),
            },
        )

    def _layers_in_half(self) -> tuple[Layers, Sensitivity | None]:
        """Return the layers that stay in FP16: those that the gates ask for; without gates, those that lose much."""
        lost = {_name(choice): choice.lost for choice in self._choices}
        if not self._searched or not lost:
            return frozenset(name for name, share in lost.items() if share > MOST_LOST), None
        encoder, row, context = encoder_of(self._parent), task(self._parent.task), answer_context(self._parent)
        rows = encoder.rows(self._held_out)

        def answers(path: Path, texts: Sequence[Row], options: Mapping[str, str] | None = None) -> Outputs:
            engine = Engine(str(path), threads=self._settings.threads, options=options)
            return infer_rows(engine.infer, encoder, texts, policy="alone", maximum_batch=1)

        def trial(kept: Layers, texts: Sequence[Row]) -> Outputs:
            """In fp32 with the Q/DQ pairs as they are: they round as on the GPU, and FP16 adds next to nothing."""
            with ScratchFolder("qdq") as folder:
                write_model(self._graph(kept)[0], Path(folder) / ENTRY)
                return answers(Path(folder) / ENTRY, texts, UNFUSED_PAIRS)

        def judged(outputs: Outputs) -> Answers:
            return row.judged(context, self._held_out, outputs)

        reference = answers(self._parent.entry_path, rows)
        kinds = kinds_of(self._held_out)
        quick = quick_texts(rows, reference, kinds)
        quick_rows = [rows[index] for index in quick]
        return search(
            SearchQuestion(
                task=self._parent.task,
                gates=self._settings.limits,
                reference=judged(reference),
                answer=lambda kept: judged(trial(kept, rows)),
                quick_reference=answers(self._parent.entry_path, quick_rows),
                quick_answer=lambda kept: trial(kept, quick_rows),
                work={_name(choice): float(sum(array_of(w).size for w in choice.weights)) for choice in self._choices},
                texts=len(rows),
                texts_digest=digest_of_texts(self._held_out),
                kinds=kinds,
                quick_kinds=[kinds[index] for index in quick],
            ),
            budget_s=self._settings.budget_s,
            suspected=lost,
            advance=report_progress,
        )

    def _graph(self, in_half: Layers) -> tuple[ir.Model, list[Site]]:
        """Return a copy of the fp32 graph with Q/DQ pairs, and the quantised inputs of its linear layers."""
        model = self._model.clone()
        choices = [choice.moved_to(model) for choice in self._choices if _name(choice) not in in_half]
        chosen = {choice.weights for choice in choices}
        linear = [site for site in linear_sites(model, keep=self._in_fp32) if site.weights in chosen]
        linear, linear_scales = smooth(model, linear, choices)
        others = [
            *(attention_sites(model, keep=self._in_fp32) if self._attention else ()),
            *(residual_sites(model, keep=self._in_fp32) if self._residual else ()),
        ]
        scales = activation_scales(model, others, self._inputs, threads=self._settings.threads) | linear_scales
        insert_pairs(model, [*linear, *others], scales)
        return model, linear


def _name(choice: ScaleChoice) -> str:
    return str(choice.weights[0].name)


def insert_pairs(model: ir.Model, sites: Sequence[Site], scales: Mapping[str, float]) -> None:
    """Insert, in place, one Q/DQ pair for each activation and one DQ for each weight, whose INT8 numbers replace it."""
    graph = model.graph
    for weight in dict.fromkeys(weight for site in sites for weight in site.weights):
        matrix = array_of(weight)
        scale = weight_scale(matrix)
        levels = whole_numbers(matrix, scale, levels=LEVELS).astype(np.int8)
        inputs = [
            add_weight(graph, f"{weight.name}_int8", levels),
            add_weight(graph, f"{weight.name}_scale", scale),
            _zeros(graph, len(scale)),
        ]
        node = new_node("DequantizeLinear", inputs, f"{weight.name}_dq", axis=1)
        graph.insert_before(graph[0], node)
        weight.replace_all_uses_with(node.outputs[0])
    by_tensor: dict[ir.Value, list[Site]] = {}
    for site in sites:
        by_tensor.setdefault(site.tensor, []).append(site)
    for tensor, reading in by_tensor.items():
        encoding = [add_weight(graph, f"{tensor.name}_scale", np.float32(scales[tensor.name])), _zeros(graph)]
        quantize = new_node("QuantizeLinear", [tensor, *encoding], f"{tensor.name}_q")
        dequantize = new_node("DequantizeLinear", [quantize.outputs[0], *encoding], f"{tensor.name}_dq")
        readers = tuple(reader for site in reading for reader in site.readers)
        read_instead(Site(tensor, readers), [quantize, dequantize])


def _zeros(graph: ir.Graph, size: int | None = None) -> ir.Value:
    """Return zero points of zero, as the one weight of this size."""
    name = "int8_zero" if size is None else f"int8_zeros_{size}"
    if name in graph.initializers:
        return graph.initializers[name]
    return add_weight(graph, name, np.zeros(() if size is None else size, np.int8))


def pair_checks(model: ir.Model, *, linear: int) -> tuple[Check, ...]:
    """Check, in the finished graph, what TensorRT asks of explicit INT8."""
    integer, shifted = 0, 0
    for node in model.graph:
        if node.op_type == "MatMul":
            makers = [value.producer() for value in node.inputs]
            integer += all(maker is not None and maker.op_type == "DequantizeLinear" for maker in makers)
        elif node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            shifted += bool(array_of(node.inputs[2]).any())
    return (
        Check(name="matrix products between Q/DQ", observed=integer, limit=linear, comparison=">="),
        Check(name="zero points other than zero", observed=shifted, limit=0, comparison="=="),
    )
