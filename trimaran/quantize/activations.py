"""Runs real text through an fp32 graph and keeps how large each of its tensors gets."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trimaran.core.artifact import Artifact
from trimaran.core.corpus import encoder_of, spread
from trimaran.core.errors import UsageError
from trimaran.core.onnx_graph import save_graph
from trimaran.quantize.int8.ranges import BINS, magnitude_counts
from trimaran.runtime.text import Text

Array = npt.NDArray[Any]
Inputs = Mapping[str, Array]
FEWEST = 16
# Larger initializers say nothing to shape inference but their shape.
_LARGE_BYTES = 4096


def calibration_inputs(parent: Artifact, texts: Sequence[Text], *, samples: int) -> list[dict[str, Array]]:
    """Single texts as they are, then the longest ones padded together: masks act only where there is padding."""
    if len(texts) < FEWEST:
        raise UsageError(
            f"Ranges are taken from at least {FEWEST} texts, found {len(texts)}.",
            hint='Settings.calibration wants them; shipped_texts("calibration") has some.',
        )
    encoder = encoder_of(parent)
    rows = encoder.rows(spread(texts, samples))
    batch = min(8, parent.profile.batch.maximum)
    longest = sorted(rows, key=lambda row: len(row.ids))[-batch:]
    together = [*longest[:-1], rows[0]] if batch > 1 else longest
    return [
        *(encoder.batch([row]) for row in rows),
        encoder.batch(together, length=parent.profile.sequence.maximum),
    ]


def float_tensors(model: Any) -> set[str]:
    """Names of all fp32 tensors, weights included, by ONNX's own type inference."""
    import onnx

    graph = onnx.shape_inference.infer_shapes(without_weights(model)).graph
    values = (*graph.input, *graph.output, *graph.value_info)
    found = {value.name for value in values if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT}
    return found | {tensor.name for tensor in graph.initializer if tensor.data_type == onnx.TensorProto.FLOAT}


def without_weights(model: Any) -> Any:
    """A copy with the shapes and types of large weights but not their data: models above 2 GB fit protobuf again."""
    import onnx

    light = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import, functions=model.functions)
    light.graph.name = model.graph.name
    for name in ("node", "input", "output", "value_info"):
        getattr(light.graph, name).extend(getattr(model.graph, name))
    for tensor in model.graph.initializer:
        if len(tensor.raw_data) <= _LARGE_BYTES:
            light.graph.initializer.append(tensor)
            continue
        entry = light.graph.initializer.add(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
        entry.data_location = onnx.TensorProto.EXTERNAL
        entry.external_data.add(key="location", value="left-out")
    return light


class Observation:
    """A session of the graph that also gives the named inner tensors."""

    def __init__(self, model: Any, tensors: Sequence[str], *, threads: int) -> None:
        import onnx
        import onnxruntime as ort

        outputs = model.graph.output
        known = [output.name for output in outputs]
        outputs.extend(
            onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
            for name in dict.fromkeys(tensors)
            if name not in known
        )
        settings = ort.SessionOptions()
        settings.intra_op_num_threads, settings.inter_op_num_threads = threads, 1
        settings.log_severity_level = 3
        # An arena keeps what the longest text took, for every tensor that is watched, and grows in powers of two.
        settings.enable_cpu_mem_arena = False
        self._names = list(tensors)
        with tempfile.TemporaryDirectory(prefix="trimaran-") as folder:
            path = Path(folder) / "watched.onnx"
            try:
                # No copy of the weights in memory: they lie beside the graph, where the session maps them.
                save_graph(model, path, external_above_bytes=0)
            finally:
                del outputs[len(known) :]
            self._session = ort.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])

    def run(self, inputs: Inputs) -> Iterator[tuple[str, Array]]:
        yield from zip(self._names, self._session.run(self._names, dict(inputs)), strict=True)


def largest_magnitudes(
    model: Any, tensors: Sequence[str], inputs: Sequence[Inputs], *, threads: int
) -> dict[str, float]:
    """max |x| of each tensor over all inputs."""
    found = dict.fromkeys(tensors, 0.0)
    observation = Observation(model, tensors, threads=threads)
    for batch in inputs:
        for name, array in observation.run(batch):
            # An infinity is the same in every float type; a mask may hold one.
            finite = np.abs(array[np.isfinite(array)])
            if finite.size:
                found[name] = max(found[name], float(finite.max()))
    return found


def magnitude_histograms(
    model: Any, largest: Mapping[str, float], inputs: Sequence[Inputs], *, threads: int
) -> dict[str, Array]:
    """How often |x| fell into each of `BINS` equal bins up to the tensor's largest magnitude."""
    counts = {name: np.zeros(BINS, np.int64) for name in largest}
    observation = Observation(model, list(largest), threads=threads)
    for batch in inputs:
        for name, array in observation.run(batch):
            if largest[name] > 0:
                counts[name] += magnitude_counts(array, largest[name])
    return counts


@dataclass(frozen=True)
class Samples:
    """Token vectors of one tensor, drawn evenly from the inputs, and each channel's range over all their tokens.

    `halved` has the rows of every second input, and the ranges over all the others.
    """

    rows: Array
    low: Array
    high: Array
    halved: Samples | None = None

    @property
    def peak(self) -> Array:
        return np.maximum(np.abs(self.low), np.abs(self.high))

    def thinned(self, rows: int) -> Samples:
        """With about so many of the rows, drawn evenly."""
        return replace(self, rows=self.rows[:: max(1, len(self.rows) // rows)], halved=None)


def sampled_rows(
    model: Any, tensors: Sequence[str], inputs: Sequence[Inputs], *, rows: int, threads: int
) -> dict[str, Samples]:
    """About `rows` token vectors of each tensor."""
    generator = np.random.default_rng(0)
    ranges: dict[str, list[tuple[Array, Array]]] = {name: [] for name in tensors}
    kept: dict[str, list[Array]] = {name: [] for name in tensors}
    observation = Observation(model, tensors, threads=threads)
    each = max(1, rows // len(inputs))
    for batch in inputs:
        # Never by position: first and last tokens are markers, unlike all others.
        tokens = generator.permutation(next(iter(batch.values())).size)[:each]
        for name, array in observation.run(batch):
            vectors = array.reshape(-1, array.shape[-1])
            ranges[name].append((vectors.min(axis=0), vectors.max(axis=0)))
            kept[name].append(vectors[tokens % len(vectors)])
    return {
        name: _samples(kept[name], ranges[name], halved=_samples(kept[name][1::2] or kept[name], ranges[name][::2]))
        for name in tensors
    }


def _samples(rows: Sequence[Array], ranges: Sequence[tuple[Array, Array]], halved: Samples | None = None) -> Samples:
    low, high = (end(side, axis=0) for end, side in zip((np.min, np.max), zip(*ranges, strict=True), strict=True))
    return Samples(np.concatenate(rows), low, high, halved)


def smoothing_divisor(reach: Array, heights: Array, strength: float, *, steepest: float = 64.0) -> Array:
    """SmoothQuant's: what makes activations and weights equally hard to round, shifted by its strength.

    A common factor of all channels changes nothing; dividing by the middle one keeps both sides near one in FP16.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        divisor = np.power(reach, strength) / np.power(heights, 1.0 - strength)
    divisor = np.where(np.isfinite(divisor) & (divisor > 0), divisor, 1.0)
    return np.asarray(np.clip(divisor / np.exp(np.log(divisor).mean()), 1 / steepest, steepest), np.float32)
