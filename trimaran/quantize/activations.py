"""Runs real text through an fp32 graph and records how large its inner tensors get."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trimaran.core.artifact import Artifact
from trimaran.core.corpus import digest_of_texts, encoder_of, spread
from trimaran.core.errors import UsageError
from trimaran.core.onnx_write import write_model
from trimaran.core.scratch import ScratchFolder
from trimaran.quantize.ranges import BINS, magnitude_counts
from trimaran.runtime.text import Array, Text

if TYPE_CHECKING:
    import onnx_ir as ir

Inputs = Mapping[str, Array]
FEWEST_TEXTS = 16
# Token vectors sampled of each activation, unless they would need more memory than this.
ROWS = 2560
MOST_SAMPLED_BYTES = 1 << 28


def calibration_inputs(parent: Artifact, texts: Sequence[Text], *, samples: int) -> list[dict[str, Array]]:
    """Return single texts as they are, then one batch of the longest, padded: masks act only where there is padding."""
    if len(texts) < FEWEST_TEXTS:
        raise UsageError(
            f"Ranges are taken from at least {FEWEST_TEXTS} texts, found {len(texts)}.",
            hint='Give more in MakerSettings.calibration; shipped_texts("calibration") has some.',
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


def calibration_facts(texts: Sequence[Text]) -> dict[str, Any]:
    """Return what the manifest says of the texts that calibrated."""
    return {"texts": len(texts), "digest": digest_of_texts(texts)}


class Observation:
    """A session of the graph that also gives the named inner tensors, which must be fp32."""

    def __init__(self, model: ir.Model, tensors: Sequence[str], *, threads: int) -> None:
        import onnx_ir as ir
        import onnxruntime as ort

        watched = model.clone()
        values = ir.convenience.create_value_mapping(watched.graph)
        for value in [values[name] for name in dict.fromkeys(tensors)]:
            if not value.is_graph_output():
                value.type, value.shape = ir.TensorType(ir.DataType.FLOAT), None
                watched.graph.outputs.append(value)
        settings = ort.SessionOptions()
        settings.intra_op_num_threads, settings.inter_op_num_threads = threads, 1
        settings.log_severity_level = 3
        # An arena would keep, for every watched tensor, the memory of the longest text, and grow in powers of two.
        settings.enable_cpu_mem_arena = False
        self._names = list(tensors)
        with ScratchFolder("activations") as folder:
            path = Path(folder) / "watched.onnx"
            # The session maps weights from a file beside the graph, so that no second copy of them is in memory.
            write_model(watched, path, external_above_bytes=0)
            self._session = ort.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])

    def run(self, inputs: Inputs) -> Iterator[tuple[str, Array]]:
        yield from zip(self._names, self._session.run(self._names, dict(inputs)), strict=True)


def largest_magnitudes(
    model: ir.Model, tensors: Sequence[str], inputs: Sequence[Inputs], *, threads: int
) -> dict[str, float]:
    """Return max |x| of each tensor over all inputs."""
    largest = dict.fromkeys(tensors, 0.0)
    observation = Observation(model, tensors, threads=threads)
    for batch in inputs:
        for name, array in observation.run(batch):
            # Infinities are left out: a mask may hold one, and it is the same in every float type.
            finite = np.abs(array[np.isfinite(array)])
            if finite.size:
                largest[name] = max(largest[name], float(finite.max()))
    return largest


def magnitude_histograms(
    model: ir.Model, largest: Mapping[str, float], inputs: Sequence[Inputs], *, threads: int
) -> dict[str, Array]:
    """Count how often |x| fell into each of `BINS` equal bins up to the tensor's largest magnitude."""
    counts = {name: np.zeros(BINS, np.int64) for name in largest}
    observation = Observation(model, list(largest), threads=threads)
    for batch in inputs:
        for name, array in observation.run(batch):
            if largest[name] > 0:
                counts[name] += magnitude_counts(array, largest[name])
    return counts


@dataclass(frozen=True)
class Samples:
    """Token vectors of one tensor, drawn evenly from the inputs."""

    # [tokens, channels]
    rows: Array
    # Each channel's smallest and largest number, over all tokens of the inputs.
    low: Array
    high: Array
    # The same with rows of every second input and ranges over the others: how a range does on texts it has not seen.
    halved: Samples | None = None

    @property
    def peak(self) -> Array:
        """Each channel's largest magnitude."""
        return np.maximum(np.abs(self.low), np.abs(self.high))

    def thinned(self, rows: int) -> Samples:
        """Return about so many of the rows, drawn evenly."""
        return replace(self, rows=self.rows[:: max(1, len(self.rows) // rows)], halved=None)


def rows_within_memory(width: int) -> int:
    """Return how many token vectors to sample, if those of all activations have `width` numbers together."""
    return min(ROWS, max(ROWS // 8, MOST_SAMPLED_BYTES // (4 * max(1, width))))


def sampled_rows(
    model: ir.Model, tensors: Sequence[str], inputs: Sequence[Inputs], *, rows: int, threads: int
) -> dict[str, Samples]:
    """Return about `rows` token vectors of each tensor."""
    generator = np.random.default_rng(0)
    ranges: dict[str, list[tuple[Array, Array]]] = {name: [] for name in tensors}
    kept: dict[str, list[Array]] = {name: [] for name in tensors}
    observation = Observation(model, tensors, threads=threads)
    rows_each = max(1, rows // len(inputs))
    for batch in inputs:
        # Tokens are drawn at random, not by position: the first and the last are markers, unlike all others.
        tokens = generator.permutation(next(iter(batch.values())).size)[:rows_each]
        for name, array in observation.run(batch):
            vectors = array.reshape(-1, array.shape[-1])
            ranges[name].append((vectors.min(axis=0), vectors.max(axis=0)))
            kept[name].append(vectors[tokens % len(vectors)])
    return {
        name: _samples(kept[name], ranges[name], halved=_samples(kept[name][1::2] or kept[name], ranges[name][::2]))
        for name in tensors
    }


def _samples(rows: Sequence[Array], ranges: Sequence[tuple[Array, Array]], halved: Samples | None = None) -> Samples:
    lows, highs = zip(*ranges, strict=True)
    return Samples(np.concatenate(rows), np.min(lows, axis=0), np.max(highs, axis=0), halved)


def smoothing_divisor(reach: Array, heights: Array, strength: float, *, steepest: float = 64.0) -> Array:
    """Return SmoothQuant's divisor by channel, which shifts the difficulty of rounding from activations to weights.

    `reach` is how far each channel's activations go, `heights` how far its weights go. At strength 1 all activations
    reach equally far afterwards, at strength 0 all weights do. A common factor of all channels changes nothing.
    Dividing by the geometric mean keeps both sides near one, which FP16 needs.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        divisor = np.power(reach, strength) / np.power(heights, 1.0 - strength)
    divisor = np.where(np.isfinite(divisor) & (divisor > 0), divisor, 1.0)
    return np.asarray(np.clip(divisor / np.exp(np.log(divisor).mean()), 1 / steepest, steepest), np.float32)
