"""INT8 with calibrated activations, and in float only the layers that the gates need: for OpenVINO and ONNX Runtime."""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from trimaran.core.artifact import Artifact, Check
from trimaran.core.backends import engine_class
from trimaran.core.call_memory import ATTENTION_BLOCKS
from trimaran.core.corpus import encoder_of
from trimaran.core.distances import Outputs
from trimaran.core.errors import ToolError
from trimaran.core.isolation import report_progress
from trimaran.core.onnx_graph import array_of
from trimaran.core.onnx_write import write_model
from trimaran.core.proof_effort import effort_for
from trimaran.core.scratch import ScratchFolder
from trimaran.judging.sensitivity import KEY, Sensitivity
from trimaran.quantize.activations import (
    Samples,
    calibration_facts,
    calibration_inputs,
    rows_within_memory,
    sampled_rows,
)
from trimaran.quantize.attention_blocks import block_saved
from trimaran.quantize.int8.embedding_tables import encoded_table, large_tables, write_tables
from trimaran.quantize.int8.encodings import choose_encodings
from trimaran.quantize.int8.held_out import search_layers, split_texts
from trimaran.quantize.int8.integer_graph import Style, integer_graph, name_nodes
from trimaran.quantize.int8.integer_receipt import openvino_receipt, session_receipt
from trimaran.quantize.int8.openvino_graph import pack_saved, save_openvino
from trimaran.quantize.int8.search import Layers
from trimaran.quantize.linear_layers import attention_scores, linear_layers
from trimaran.quantize.packed_tokens import pack_saved as pack_onnx
from trimaran.quantize.ranges import symmetric_step
from trimaran.quantize.settings import MadeCandidate, MakerSettings
from trimaran.runtime.text import Row, infer_rows

if TYPE_CHECKING:
    import onnx_ir as ir

LENGTHS = (4, 8, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 256)
MOST_ROWS = 16
_SYMMETRIC_LEVELS = 127
# How far a packed graph with layers in float may answer from the plain one, as a share of the largest number. A graph
# that reads padding is far beyond. Its truth is judged, and its certificate taken, as of every candidate.
PACKED_NOISE = 0.02
# Of ONNX Runtime: run Q/DQ pairs as they are, without fusing them into integer products. They round alike.
UNFUSED_PAIRS = {"session.disable_quant_qdq": "1"}


def openvino_mixed(parent: Artifact, folder: Path, settings: MakerSettings) -> MadeCandidate:
    # The graph's weights are freed before the written graph is compiled twice, plain and packed.
    made = _MixedGraph(parent, settings, backend="openvino", style="qdq").make(folder)
    gc.collect()
    return made.model_copy(update={"details": made.details | pack_saved(folder / made.entry)})


def onnxruntime_static(parent: Artifact, folder: Path, settings: MakerSettings) -> MadeCandidate:
    made = _MixedGraph(parent, settings, backend="onnxruntime", style="onnxruntime").make(folder)
    if blocks := block_saved(folder / made.entry, parent.profile.sequence.maximum):
        made = made.model_copy(update={"details": {**made.details, ATTENTION_BLOCKS: blocks}})
    # Float layers add up in another order when packed, and the noise moves roundings after them.
    tolerance = PACKED_NOISE if made.details["kept_in_float"] else 0.0
    packed = pack_onnx(folder / made.entry, tolerance=tolerance)
    return made.model_copy(update={"details": {**made.details, "packed": packed}})


def shortened(row: Row) -> Row:
    """Cut the row to one of few lengths, by as little as possible, and keep its last token.

    OpenVINO prepares itself for every new length; with many lengths a trial would spend most of its time on that.
    """
    size = max((length for length in LENGTHS if length <= len(row.ids)), default=len(row.ids))
    return Row([*row.ids[: size - 1], row.ids[-1]], [*row.type_ids[: size - 1], row.type_ids[-1]])


class _MixedGraph:
    """A graph with the encodings of all its layers. Any set of them can run in float."""

    def __init__(self, parent: Artifact, settings: MakerSettings, *, backend: str, style: Style) -> None:
        import onnx_ir as ir

        self._parent, self._settings, self._backend, self._style = parent, settings, backend, style
        self._calibrating, self._held_out = split_texts(settings.calibration, effort_for(parent.details))
        self._encoder = encoder_of(parent)
        self._model = name_nodes(ir.load(parent.entry_path))
        self._layers = linear_layers(self._model)
        self._scores = attention_scores(self._model) if style == "qdq" else []
        if not self._layers:
            raise ToolError(f"{parent.name} has no linear layer that can run on whole numbers.", hint="Use fp32.")
        self._tables = {name: encoded_table(self._model.graph.initializers[name]) for name in large_tables(self._model)}
        report_progress(0, 1, "calibration")
        samples = self._samples()
        weights = self._model.graph.initializers
        matrices = {name: array_of(weights[name]) for layer in self._layers for name in layer.weights}
        self._encodings = choose_encodings(
            self._layers,
            matrices,
            samples,
            weight_levels=settings.weight_levels,
            advance=report_progress,
            threads=settings.threads,
        )
        # By attention: the steps of its queries and its keys.
        self._steps = {
            scores.name: {name: _step_of(samples[name]) for name in scores.tensors} for scores in self._scores
        }

    def make(self, folder: Path) -> MadeCandidate:
        """Search the layers to keep in float, write the graph, and count what the engine runs on whole numbers."""
        kept, sensitivity = self._search()
        entry = self._write(kept, folder, final=True)
        products = sum(len(layer.products) for layer in self._layers if layer.name not in kept)
        receipt = openvino_receipt if self._backend == "openvino" else session_receipt
        return MadeCandidate(
            entry=entry,
            checks=(receipt(folder / entry, products, threads=self._settings.threads), *_gate_checks(sensitivity)),
            details={
                "calibration": calibration_facts(self._calibrating),
                "encodings": {name: chosen.facts() for name, chosen in self._encodings.items() if name not in kept},
                "kept_in_float": sorted(kept),
                **({"int8_tables": int8_tables} if (int8_tables := sorted(set(self._tables) - kept)) else {}),
                KEY: sensitivity.model_dump(mode="json"),
            },
        )

    def _search(self) -> tuple[Layers, Sensitivity]:
        rows = self._encoder.rows(self._held_out)
        if self._backend == "openvino":
            rows = [shortened(row) for row in rows]
        work, lost = self._work(), {name: chosen.lost for name, chosen in self._encodings.items()}
        return search_layers(
            self._parent,
            self._settings,
            self._held_out,
            rows,
            exact=lambda rows: self._answers(self._parent.entry_path, self._parent.backend, rows),
            trial=self._trial,
            quick_trial=self._quick_trial,
            work=work,
            suspected={name: lost.get(name, 0.0) for name in work},
        )

    def _samples(self) -> dict[str, Samples]:
        # Nobody reads the answers at padding. The last of the inputs is the padded one: it is left out.
        inputs = calibration_inputs(self._parent, self._calibrating, samples=len(self._calibrating))[:-1]
        names = [name for layer in self._layers for name in layer.tensors]
        names += [name for scores in self._scores for name in scores.tensors]
        width = sum(layer.inputs * len(layer.tensors) for layer in self._layers)
        rows = rows_within_memory(width)
        return sampled_rows(self._model, names, inputs, rows=rows, threads=self._settings.threads)

    def _work(self) -> dict[str, float]:
        """Return the multiplications for one typical token, in the graph's order."""
        sequence = self._parent.profile.sequence.typical
        width = max(layer.inputs for layer in self._layers)
        work = {layer.name: float(layer.multiplications) for layer in self._layers}
        work |= {scores.name: float(sequence * min(width, 1024)) for scores in self._scores}
        # A table in float costs memory, not time. It counts as a layer of middle size.
        return work | dict.fromkeys(self._tables, float(median(work.values())))

    def _trial(self, kept: Layers, rows: Sequence[Row]) -> Outputs:
        with ScratchFolder("mixed") as folder:
            entry = self._write(kept, Path(folder), final=False)
            return self._answers(Path(folder) / entry, self._backend, rows)

    def _quick_trial(self, kept: Layers, rows: Sequence[Row]) -> Outputs:
        """Answer in ONNX Runtime, whatever the engine: it opens a graph soonest."""
        with ScratchFolder("mixed") as folder:
            path = Path(folder) / "model.onnx"
            write_model(self._graph(kept), path)
            return self._answers(path, "onnxruntime", rows, options=UNFUSED_PAIRS)

    def _graph(self, kept: Layers) -> ir.Model:
        from onnx_ir.passes.common import RemoveUnusedNodesPass

        steps = {
            name: step for scores, sides in self._steps.items() if scores not in kept for name, step in sides.items()
        }
        graph = integer_graph(self._model, self._layers, self._encodings, kept=kept, style=self._style, steps=steps)
        write_tables(graph, {name: table for name, table in self._tables.items() if name not in kept})
        RemoveUnusedNodesPass()(graph)
        return graph

    def _write(self, kept: Layers, folder: Path, *, final: bool) -> str:
        write_model(self._graph(kept), folder / "model.onnx")
        if self._backend != "openvino":
            return "model.onnx"
        import openvino as ov

        entry = save_openvino(ov.convert_model(str(folder / "model.onnx")), folder, final=final)
        for path in folder.glob("model.onnx*"):
            path.unlink()
        return entry

    def _answers(
        self, path: Path, backend: str, rows: Sequence[Row], *, options: Mapping[str, str] | None = None
    ) -> Outputs:
        engine: Any = engine_class(backend)(str(path), threads=self._settings.threads, options=options or {})
        try:
            # Ranges are fixed, so rows of one length answer in a batch as they do alone, and sooner.
            return infer_rows(engine.infer, self._encoder, rows, policy="equal-length", maximum_batch=MOST_ROWS)
        finally:
            engine.close()


def _step_of(samples: Samples) -> float:
    peak = max(float(samples.peak.max()), 1e-9)
    return symmetric_step(samples.rows, peak, levels=_SYMMETRIC_LEVELS)


def _gate_checks(sensitivity: Sensitivity) -> tuple[Check, ...]:
    """Report every gate, kept or not: whether the candidate competes is decided on the judging texts."""
    return tuple(
        Check(
            name=f"held out: {gate.metric}",
            observed=gate.value,
            limit=gate.limit,
            comparison=gate.comparison,
            detail=f"({gate.low:.3g} to {gate.high:.3g}, {gate.n} texts)",
        )
        for gate in sensitivity.gates
    )
