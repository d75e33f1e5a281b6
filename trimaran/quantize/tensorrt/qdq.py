"""Explicit symmetric INT8 for TensorRT: Q/DQ pairs with zero points of zero, the rest of the graph in FP16.

TensorRT takes precision from the graph. An activation that passes through QuantizeLinear and DequantizeLinear, and then
meets a weight behind a DequantizeLinear of its own, is multiplied in INT8:

    x -> Add, Mul by channel -> QuantizeLinear -> DequantizeLinear ─┐
                                                                    MatMul -> Add corrected bias
    int8 weight ------------------------------> DequantizeLinear ───┘

The encodings are those of the CPU's INT8 (`int8/encodings`), without zero points. The search of the CPU finds what the
gates allow (`int8/search`): linear layers, and, in the larger variants, attentions and residual sums. An attention does
far fewer multiplications than the linear layers beside it, so it goes back to FP16 before they do.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from trimaran.core.artifact import Artifact
from trimaran.core.corpus import encoder_of, spread
from trimaran.core.distances import Outputs
from trimaran.core.errors import ToolError
from trimaran.core.isolation import report_progress
from trimaran.core.onnx_graph import array_of
from trimaran.core.onnx_write import write_model
from trimaran.core.proof_effort import effort_for
from trimaran.core.scratch import ScratchFolder
from trimaran.judging.sensitivity import KEY, Sensitivity
from trimaran.quantize.activations import calibration_facts, calibration_inputs, rows_within_memory, sampled_rows
from trimaran.quantize.half.fp16 import check_types, half_facts, overflowing, prepare
from trimaran.quantize.half.half_graph import HALF_TYPES, to_half
from trimaran.quantize.int8.encodings import choose_encodings
from trimaran.quantize.int8.held_out import search_layers, split_texts
from trimaran.quantize.int8.integer_graph import integer_graph, name_nodes
from trimaran.quantize.int8.mixed import MOST_ROWS, UNFUSED_PAIRS
from trimaran.quantize.int8.search import Layers
from trimaran.quantize.linear_layers import is_attention_product, linear_layers, through_layout
from trimaran.quantize.settings import MadeCandidate, MakerSettings
from trimaran.quantize.tensorrt.engine_receipt import INT8_FUSED_HEADS, INT8_MOST_TOKENS, head_size
from trimaran.quantize.tensorrt.qdq_pairs import activation_scales, insert_pairs, pair_checks
from trimaran.quantize.tensorrt.qdq_sites import QuantisedPart, attention_parts, residual_parts
from trimaran.runtime.onnxruntime_engine import Engine
from trimaran.runtime.text import Row, infer_rows

if TYPE_CHECKING:
    import onnx_ir as ir

Variant = Literal["linear", "attention", "full"]
ENTRY = "model.onnx"
OVERFLOW_SAMPLES = 33
# Ranges of attentions and residual sums are taken from so many texts.
RANGE_SAMPLES = 64
# Without gates, a layer whose result loses more than this share of each token's energy stays in FP16.
MOST_LOST = 2e-3
_HALF = HALF_TYPES["fp16"]


def tensorrt_int8(parent: Artifact, folder: Path, settings: MakerSettings) -> MadeCandidate:
    """Linear layers in INT8."""
    return _QdqGraph(parent, settings, "linear").make(folder)


def tensorrt_int8_attention(parent: Artifact, folder: Path, settings: MakerSettings) -> MadeCandidate:
    """Linear layers and attentions in INT8."""
    return _QdqGraph(parent, settings, "attention").make(folder)


def tensorrt_int8_full(parent: Artifact, folder: Path, settings: MakerSettings) -> MadeCandidate:
    """Linear layers, attentions and the skipped side of residual sums in INT8."""
    return _QdqGraph(parent, settings, "full").make(folder)


class _QdqGraph:
    """A graph with the encodings of all its layers. Any set of them can stay in FP16."""

    def __init__(self, parent: Artifact, settings: MakerSettings, variant: Variant) -> None:
        if variant != "linear":
            _refuse_unfused_attention(parent)
        self._parent, self._settings, self._variant = parent, settings, variant
        # Without gates there is nothing to search for, so every text calibrates.
        self._searched = bool(settings.gates)
        calibrating, self._held_out = (
            split_texts(settings.calibration, effort_for(parent.details))
            if self._searched
            else (settings.calibration, [])
        )
        self._texts = spread(calibrating, effort_for(parent.details).calibrating)
        report_progress(0, 1, "calibration")
        inputs = calibration_inputs(parent, self._texts, samples=effort_for(parent.details).calibrating)
        self._model, self._clipping = prepare(parent, _HALF, inputs, threads=settings.threads)
        name_nodes(self._model)
        self._in_fp32 = overflowing(self._model, _HALF, inputs[-OVERFLOW_SAMPLES:], threads=settings.threads)
        # Nobody reads the answers at padding. The last inputs are the padded ones: ranges are taken without them.
        self._inputs = inputs[:-1]
        self._layers = linear_layers(self._model)
        nodes = {str(node.name): node for node in self._model.graph}
        # Layers with a product that FP16 cannot hold are never quantised.
        self._refused = {
            layer.name
            for layer in self._layers
            if any(nodes[product.node].outputs[0].name in self._in_fp32 for product in layer.products)
        }
        weights = self._model.graph.initializers
        matrices = {name: array_of(weights[name]) for layer in self._layers for name in layer.weights}
        names = [name for layer in self._layers for name in layer.tensors]
        width = sum(layer.inputs * len(layer.tensors) for layer in self._layers)
        rows = rows_within_memory(width)
        samples = sampled_rows(self._model, names, self._inputs, rows=rows, threads=settings.threads) if names else {}
        self._encodings = choose_encodings(
            self._layers, matrices, samples, signed=True, advance=report_progress, threads=settings.threads
        )
        # By attention, the linear layer that reads its result. Without that in INT8, attention is no INT8 kernel.
        self._projections = _projections(
            self._model, {name: layer.name for layer in self._layers for name in layer.tensors}
        )
        self._parts = [part.name for part in self._parts_of(self._model)]
        self._scales = {folded: self._part_scales(folded) for folded in (False, True)} if self._parts else {}

    def make(self, folder: Path) -> MadeCandidate:
        in_half, sensitivity = self._layers_in_half()
        in_half = self._with_dependent_parts(in_half)
        linear = [layer for layer in self._layers if layer.name not in in_half]
        parts = [name for name in self._parts if name not in in_half]
        if not linear:
            raise ToolError(
                f"All {len(self._layers)} linear layers of {self._parent.name} lose too much in INT8."
                if self._layers
                else f"{self._parent.name} has no linear layers; its products may be convolutions.",
                hint="Use fp16.",
            )
        if self._variant != "linear" and not parts:
            raise ToolError(
                f"No attention of {self._parent.name} keeps the gates in INT8, so this would be onnx-int8-qdq again."
            )
        model = self._graph(in_half)
        to_half(model, _HALF, keep=self._in_fp32)
        check_types(model)
        write_model(model, folder / ENTRY)
        kinds = {name: "fp16" if name in in_half else "int8" for name in (*self._encodings, *self._parts)}
        return MadeCandidate(
            entry=ENTRY,
            checks=(self._clipping, *pair_checks(model, linear=sum(len(layer.products) for layer in linear))),
            details={
                "half": half_facts(model, "fp16", self._in_fp32),
                "quantised": {"linear": len(linear), "parts": len(parts)},
                "encodings": {
                    name: {**chosen.facts(), "type": kinds[name]} for name, chosen in self._encodings.items()
                },
                **({"parts": {name: kinds[name] for name in self._parts}} if self._parts else {}),
                "calibration": calibration_facts(self._texts),
                **({KEY: sensitivity.model_dump(mode="json")} if sensitivity else {}),
            },
        )

    def _layers_in_half(self) -> tuple[Layers, Sensitivity | None]:
        """Return what stays in FP16: what the gates ask for; without gates, linear layers that lose much."""
        lost = {name: chosen.lost for name, chosen in self._encodings.items() if name not in self._refused}
        if not self._searched or not lost:
            losing = {name for name, share in lost.items() if share > MOST_LOST}
            return frozenset(losing | self._refused), None
        worst = max(lost.values())
        kept, sensitivity = search_layers(
            self._parent,
            self._settings,
            self._held_out,
            encoder_of(self._parent).rows(self._held_out),
            exact=lambda rows: self._answers(self._parent.entry_path, rows),
            trial=lambda kept, rows: self._trial(self._with_dependent_parts(kept), rows),
            quick_trial=self._trial,
            work=self._work(lost),
            # Probabilities of attention are rounded coarsely: until it is measured, a part counts like the worst layer.
            suspected=lost | dict.fromkeys(self._parts, worst),
        )
        return kept | self._refused, sensitivity

    def _work(self, layers: Collection[str]) -> dict[str, float]:
        """Return the multiplications for one typical token, in the graph's order."""
        by_name = {layer.name: layer for layer in self._layers}
        sequence = self._parent.profile.sequence.typical
        work = {name: float(layer.multiplications) for name, layer in by_name.items() if name in layers}
        for name in self._parts:
            # A residual sum multiplies nothing. It counts like an attention to one token.
            tokens = 2 * sequence if name in self._projections else 1
            layer = by_name.get(self._projections.get(name, ""), self._layers[0])
            work[name] = float(tokens * layer.inputs)
        return work

    def _with_dependent_parts(self, in_half: Layers) -> Layers:
        """Return these layers, and the attentions that are no INT8 kernel because their result is not quantised."""
        loose = {part for part, layer in self._projections.items() if layer in in_half}
        return in_half | (loose & set(self._parts))

    def _trial(self, in_half: Layers, rows: Sequence[Row]) -> Outputs:
        """Answer in fp32 with the Q/DQ pairs as they are: they round as on the GPU, and FP16 adds next to nothing."""
        with ScratchFolder("qdq") as folder:
            write_model(self._graph(in_half | self._refused), Path(folder) / ENTRY)
            return self._answers(Path(folder) / ENTRY, rows, UNFUSED_PAIRS)

    def _answers(self, path: Path, rows: Sequence[Row], options: Mapping[str, str] | None = None) -> Outputs:
        engine = Engine(str(path), threads=self._settings.threads, options=options)
        # Scales are fixed, so rows of one length answer in a batch as they do alone, and sooner.
        return infer_rows(engine.infer, encoder_of(self._parent), rows, policy="equal-length", maximum_batch=MOST_ROWS)

    def _graph(self, in_half: Layers) -> ir.Model:
        """Return a copy of the fp32 graph with Q/DQ pairs."""
        model = integer_graph(self._model, self._layers, self._encodings, kept=in_half, style="tensorrt")
        # Copies of channels make activations wider than the export says.
        for value in (value for node in model.graph for value in node.outputs if not value.is_graph_output()):
            value.shape = None
        for part in self._parts_of(model):
            if part.name not in in_half:
                # The layer after an attention may have changed V.
                folded = self._projections.get(part.name) not in in_half
                insert_pairs(model, part.sites, self._scales[folded])
        return model

    def _parts_of(self, model: ir.Model) -> list[QuantisedPart]:
        """Return what may be quantised beside linear layers."""
        attentions = attention_parts(model, keep=self._in_fp32) if self._variant != "linear" else []
        # An attention whose result no linear layer reads never becomes an INT8 kernel.
        attentions = [part for part in attentions if part.name in self._projections]
        return [*attentions, *(residual_parts(model, keep=self._in_fp32) if self._variant == "full" else ())]

    def _part_scales(self, folded: bool) -> dict[str, float]:
        """Return the scales of all parts: with linear layers in INT8, which change V, or with none."""
        kept = self._refused if folded else [layer.name for layer in self._layers]
        model = integer_graph(self._model, self._layers, self._encodings, kept=kept, style="tensorrt")
        sites = [site for part in self._parts_of(model) for site in part.sites]
        inputs = spread(self._inputs, RANGE_SAMPLES)
        return activation_scales(model, sites, inputs, threads=self._settings.threads)


def _projections(model: ir.Model, readers: Mapping[str, str]) -> dict[str, str]:
    """Return the layer that reads each attention's result, by its last product. `readers` are layers by tensor."""
    by_product = {}
    for value in (value for node in model.graph for value in node.outputs if value.name in readers):
        product = through_layout(value)
        if product is not None and is_attention_product(product):
            by_product[str(product.name)] = readers[str(value.name)]
    return by_product


def _refuse_unfused_attention(parent: Artifact) -> None:
    """TensorRT runs INT8 attention as one kernel for some heads only. In parts it is slower than in FP16."""
    head, tokens = head_size(parent), parent.profile.sequence.maximum
    if head not in INT8_FUSED_HEADS or tokens > INT8_MOST_TOKENS:
        sizes = ", ".join(map(str, INT8_FUSED_HEADS))
        raise ToolError(
            f"INT8 attention is one kernel for heads of {sizes} and at most {INT8_MOST_TOKENS} tokens only; "
            f"{parent.name} has heads of {head} and up to {tokens} tokens.",
            hint="Use onnx-int8-qdq, which leaves attention in FP16.",
        )
