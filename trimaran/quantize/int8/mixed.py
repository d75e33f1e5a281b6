"""INT8 with calibrated activations, and in float only what the gates ask for: for OpenVINO and for ONNX Runtime."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trimaran.core.artifact import Artifact, Check
from trimaran.core.backends import engine_class
from trimaran.core.corpus import answer_context, digest_of_texts, encoder_of
from trimaran.core.distances import Answers, Outputs
from trimaran.core.errors import ToolError
from trimaran.core.isolation import report_progress
from trimaran.core.margins import narrowest_first
from trimaran.core.onnx_graph import array_of
from trimaran.core.onnx_write import write_model
from trimaran.core.tasks import task
from trimaran.judging.sensitivity import KEY
from trimaran.quantize.activations import Samples, calibration_inputs, sampled_rows
from trimaran.quantize.int8.encodings import choose_encodings
from trimaran.quantize.int8.integer_graph import Style, integer_graph, name_nodes
from trimaran.quantize.int8.integer_receipt import openvino_receipt, session_receipt
from trimaran.quantize.int8.openvino_graph import pack_saved, save_openvino
from trimaran.quantize.int8.search import Question, search
from trimaran.quantize.linear_layers import attention_scores, linear_layers
from trimaran.quantize.ranges import kept_shares, magnitude_counts
from trimaran.quantize.settings import MadeCandidate, MakerSettings
from trimaran.runtime.text import Row, Text, infer_rows

ROWS = 2560
# Of the texts given, these shares calibrate and are held out to try layers on; no text does both.
MOST_CALIBRATING, MOST_HELD_OUT = 160, 160
MOST_SAMPLED_BYTES = 1 << 28
QUICK_TEXTS, QUICK_TOKENS = 64, 64
LENGTHS = (4, 8, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 256)
_SYMMETRIC = 127
_PAIRS_AS_THEY_ARE = {"session.disable_quant_qdq": "1"}


def openvino_mixed(parent: Artifact, folder: Path, settings: MakerSettings) -> MadeCandidate:
    # The bench and its weights are let go of before the graph is compiled plain and packed.
    made = _Bench(parent, settings, backend="openvino", style="qdq").make(folder)
    gc.collect()
    return made.model_copy(update={"details": {**made.details, "packed": pack_saved(folder / made.entry)}})


def onnxruntime_static(parent: Artifact, folder: Path, settings: MakerSettings) -> MadeCandidate:
    return _Bench(parent, settings, backend="onnxruntime", style="onnxruntime").make(folder)


def parted(texts: Sequence[Text]) -> tuple[list[Text], list[Text]]:
    """One of two calibrates, the other is held out, so that both see all parts of the file."""
    return list(texts[::2])[:MOST_CALIBRATING], list(texts[1::2])[:MOST_HELD_OUT]


def cut(row: Row) -> Row:
    """The row cut to the next length of some, its last token kept: OpenVINO prepares itself anew for every length, and
    would spend most of a trial on that. By as little as can be: shorter texts lose less.
    """
    size = max((length for length in LENGTHS if length <= len(row.ids)), default=len(row.ids))
    return Row([*row.ids[: size - 1], row.ids[-1]], [*row.type_ids[: size - 1], row.type_ids[-1]])


def few_telling(rows: Sequence[Row], reference: Outputs) -> list[Row]:
    """Short rows for quick trials; of labels those near to another one, because only such may change."""
    order = narrowest_first(reference) or range(len(rows))
    short = [rows[place] for place in order if len(rows[place].ids) <= QUICK_TOKENS]
    return short[:QUICK_TEXTS] or list(rows[:QUICK_TEXTS])


class _Bench:
    """A graph with the encodings of all its layers, of which any set can be run in float."""

    def __init__(self, parent: Artifact, settings: MakerSettings, *, backend: str, style: Style) -> None:
        import onnx_ir as ir

        self._parent, self._settings, self._backend, self._style = parent, settings, backend, style
        self._calibrating, self._held_out = parted(settings.calibration)
        self._encoder = encoder_of(parent)
        self._model = name_nodes(ir.load(parent.entry_path))
        self._layers = linear_layers(self._model)
        self._scores = attention_scores(self._model) if style == "qdq" else []
        if not self._layers:
            raise ToolError(f"{parent.name} has no linear layer that can run on whole numbers.", hint="Use fp32.")
        report_progress(0, 1, "calibration")
        samples = self._samples()
        matrices = {
            name: array_of(self._model.graph.initializers[name]) for layer in self._layers for name in layer.weights
        }
        self._encodings = choose_encodings(
            self._layers, matrices, samples, weight_levels=settings.weight_levels, advance=report_progress
        )
        self._steps = {
            scores.name: {name: symmetric_step(samples[name]) for name in scores.tensors} for scores in self._scores
        }

    def make(self, folder: Path) -> MadeCandidate:
        rows = self._encoder.rows(self._held_out)
        if self._backend == "openvino":
            rows = [cut(row) for row in rows]
        reference = self._answers(self._parent.entry_path, self._parent.backend, rows)
        few = few_telling(rows, reference)
        row, context = task(self._parent.task), answer_context(self._parent)

        def judged(outputs: Outputs) -> Answers:
            return row.judged(context, self._held_out, outputs)

        lost = {name: found.lost for name, found in self._encodings.items()}
        kept, sensitivity = search(
            Question(
                task=self._parent.task,
                gates=self._settings.limits,
                reference=judged(reference),
                answer=lambda names: judged(self._trial(names, rows)),
                quick_reference=self._answers(self._parent.entry_path, self._parent.backend, few),
                quick_answer=lambda names: self._quick_trial(names, few),
                work=self._work(),
                texts=len(rows),
                texts_digest=digest_of_texts(self._held_out),
            ),
            budget_s=self._settings.budget_s,
            first=sorted(self._work(), key=lambda name: lost.get(name, 0.0), reverse=True),
            advance=report_progress,
        )
        entry = self._write(kept, folder, final=True)
        products = sum(len(layer.products) for layer in self._layers if layer.name not in kept)
        receipt = openvino_receipt if self._backend == "openvino" else session_receipt
        return MadeCandidate(
            entry=entry,
            checks=(receipt(folder / entry, products, threads=self._settings.threads), *self._gate_checks(sensitivity)),
            details={
                "calibration": {"texts": len(self._calibrating), "digest": digest_of_texts(self._calibrating)},
                "encodings": {name: found.facts() for name, found in self._encodings.items() if name not in kept},
                "kept_in_float": sorted(kept),
                KEY: sensitivity.model_dump(mode="json"),
            },
        )

    def _samples(self) -> dict[str, Samples]:
        # What stands at padding is nobody's answer: the last of the inputs is the padded one.
        inputs = calibration_inputs(self._parent, self._calibrating, samples=MOST_CALIBRATING)[:-1]
        names = [name for layer in self._layers for name in layer.tensors]
        names += [name for scores in self._scores for name in scores.tensors]
        wide = sum(layer.inputs * len(layer.tensors) for layer in self._layers)
        rows = min(ROWS, max(ROWS // 8, MOST_SAMPLED_BYTES // (4 * wide)))
        return sampled_rows(self._model, names, inputs, rows=rows, threads=self._settings.threads)

    def _work(self) -> dict[str, float]:
        """Multiplications for a typical token, in the graph's order."""
        sequence = self._parent.profile.sequence.typical
        width = max((layer.inputs for layer in self._layers), default=1)
        work = {layer.name: float(layer.multiplications) for layer in self._layers}
        return work | {scores.name: float(sequence * min(width, 1024)) for scores in self._scores}

    def _trial(self, kept: frozenset[str], rows: Sequence[Row]) -> Outputs:
        with tempfile.TemporaryDirectory(prefix="trimaran-") as folder:
            entry = self._write(kept, Path(folder), final=False)
            return self._answers(Path(folder) / entry, self._backend, rows)

    def _quick_trial(self, kept: frozenset[str], rows: Sequence[Row]) -> Outputs:
        """In ONNX Runtime, whatever the engine: it opens a graph soonest, and pairs left as they are round alike."""
        with tempfile.TemporaryDirectory(prefix="trimaran-") as folder:
            path = Path(folder) / "model.onnx"
            write_model(self._graph(kept), path)
            return self._answers(path, "onnxruntime", rows, options=_PAIRS_AS_THEY_ARE)

    def _graph(self, kept: frozenset[str]) -> Any:
        steps: Mapping[str, float] = {
            name: step for found, sides in self._steps.items() if found not in kept for name, step in sides.items()
        }
        return integer_graph(self._model, self._layers, self._encodings, kept=kept, style=self._style, steps=steps)

    def _write(self, kept: frozenset[str], folder: Path, *, final: bool) -> str:
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
            return infer_rows(engine.infer, self._encoder, rows, policy="alone", maximum_batch=1)
        finally:
            engine.close()

    def _gate_checks(self, sensitivity: Any) -> tuple[Check, ...]:
        """A broken gate is told, not hidden: whether the candidate competes is decided on the judging texts."""
        return tuple(
            Check(
                name=f"held out: {found.metric}",
                observed=found.value,
                limit=found.limit,
                comparison=found.comparison,
                detail=f"({found.low:.3g} to {found.high:.3g}, {found.n} texts)",
            )
            for found in sensitivity.gates
        )


def symmetric_step(samples: Samples) -> float:
    """The step around zero by the method of `ranges` that rounds and clips these numbers with the least error."""
    peak = max(float(samples.peak.max()), 1e-9)

    def lost(step: float) -> float:
        levels = np.clip(np.rint(samples.rows / step), -_SYMMETRIC, _SYMMETRIC)
        return float(np.square(levels * step - samples.rows).mean())

    shares = kept_shares(magnitude_counts(samples.rows, peak), _SYMMETRIC)
    return min((share * peak / _SYMMETRIC for share in shares.values()), key=lost)
