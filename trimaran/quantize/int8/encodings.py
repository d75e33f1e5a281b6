"""Chooses, layer by layer, how an activation becomes 8-bit whole numbers, by what the layer's own result loses.

An activation x is rounded to a level from 0 to 255: level = round((x · factor + offset) / step). Factor and offset
belong to the channel, the step to the whole layer. Example: a channel from -1 to 3 with factor 1, offset 1 and step
4/255 becomes level 0 at x = -1 and level 255 at x = 3.

An engine without zero points (TensorRT) has levels from -127 to 127 instead. Zero is then the middle of each channel's
range, and all numbers are those that FP16 holds: there an activation becomes level = round((x + offset / factor) ·
factor / step).

Three things are searched. None of them changes the result before rounding.

- A factor for each channel, which moves the difficulty between activations and weights (SmoothQuant).
- An offset for each channel, so that every channel uses all levels from 0 on.
- Copies of the few channels whose range is far above the others', where the activation can be widened. Copies of a
  channel are offset by parts of a step, and together they round like one channel with that many times as many levels
  (Hermite's identity). Example: x / step = 2.4 alone becomes 2. Two copies, offset by -1/4 and 1/4 of a step, become
  round(2.15) = 2 and round(2.65) = 3; their mean is 2.5. All of it is still one integer product.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from trimaran.quantize.activations import Samples, smoothing_divisor
from trimaran.quantize.int8.weight_rounding import compensated_levels
from trimaran.quantize.linear_layers import LinearLayer
from trimaran.quantize.ranges import RangeMethod, kept_shares, magnitude_counts
from trimaran.runtime.text import Array

Anchor = Literal["low", "middle"]
LEVELS = 255
# Of an engine without zero points: the largest level; the smallest is its negative.
SIGNED_LEVELS = 127
WEIGHT_LEVELS = 127
STRENGTHS = (0.5, 0.65, 0.8, 0.9, 1.0)
ANCHORS: tuple[Anchor, ...] = ("low", "middle")
# Multiples of the range seen, which leave room for larger numbers; the methods of `ranges` only make it narrower.
WIDER_REACHES = (1.1, 1.25)
# Channels narrower than this share of the layer's channels are taken to be as wide as that. A few hundred texts show
# rare channels nearly silent, and the next text has one loud: clipped, it costs far more than a finer step gains.
LEAST_REACH_QUANTILE = 0.75
COPIES = (32, 64)
# Copies cost time. They are made only if they leave at most this share of the loss.
WORTHWHILE_SHARE = 0.8
# The search uses this many tokens and about this many of the layer's weights: whole output channels, drawn evenly.
# The chosen encoding is then made with all of them.
SEARCH_ROWS = 320
SEARCH_WEIGHTS = 600_000
_STEEPEST = 256.0
# FP16 scales below its smallest normal number would lose bits; a channel this small rounds to zero anyway.
_SMALLEST_SCALE = 2.0**-14


@dataclass(frozen=True)
class EncodingOptions:
    """What is searched for one layer."""

    # How far to smooth: 1 makes all channels reach equally far, 0 leaves the activations as they are, offsets included.
    strength: float
    # Which point of a channel's range stays where it is when the reach changes.
    anchor: Anchor
    # How many channels more the activation gets.
    copies: int
    method: RangeMethod = "minmax"
    # How far the range goes, as a multiple of what was seen.
    reach: float = 1.0


@dataclass(frozen=True)
class Encoding:
    """The numbers of one layer that an integer graph is written from.

    The activation becomes round((x[channels] · factors + offsets) / step), from 0 to 255 or from -127 to 127.
    """

    # By place of the encoded activation: the channel it is a copy of, its factor and its offset.
    channels: Array
    factors: Array
    offsets: Array
    step: float
    # [places, outputs]: the matrix as whole numbers, with one scale for each output channel.
    weights: Array
    scales: Array
    # By output channel: what is added to the result, for the offsets and for the mean error.
    correction: Array

    @property
    def copies(self) -> int:
        """How many places more than channels there are."""
        return len(self.channels) - int(self.channels.max()) - 1

    @property
    def is_plain(self) -> bool:
        """Whether the activation is rounded as it is."""
        return not self.copies and bool((self.factors == 1).all()) and not self.offsets.any()


@dataclass(frozen=True)
class ChosenEncoding(Encoding):
    """An encoding that a search chose."""

    options: EncodingOptions
    # The mean share of a token's energy (its sum of squares) that the layer's result loses.
    lost: float

    def facts(self) -> dict[str, Any]:
        return {
            "smoothing": self.options.strength,
            "anchor": self.options.anchor,
            "range": self.options.method,
            "reach": round(self.options.reach, 4),
            "copies": self.options.copies,
            "relative_error": round(self.lost, 6),
        }


def choose_encodings(
    layers: Sequence[LinearLayer],
    matrices: Mapping[str, Array],
    samples: Mapping[str, Samples],
    *,
    weight_levels: int = WEIGHT_LEVELS,
    signed: bool = False,
    advance: Callable[[int, int, str], None] = lambda done, total, what: None,
    threads: int = 1,
) -> dict[str, ChosenEncoding]:
    """Return the best encoding of each layer, by its name. `signed` is for engines without zero points.

    As many layers are worked on at once as there are threads: most of the time goes into numpy, on one core.
    """

    def chosen(layer: LinearLayer) -> ChosenEncoding:
        matrix = np.concatenate([matrices[name] for name in layer.weights], axis=1)
        return choose_encoding(layer, matrix, samples, weight_levels=weight_levels, signed=signed)

    encodings = {}
    with ThreadPoolExecutor(threads) as pool:
        for done, (layer, encoding) in enumerate(zip(layers, pool.map(chosen, layers), strict=True)):
            advance(done, len(layers), f"scales of {layer.name}")
            encodings[layer.name] = encoding
    return encodings


def choose_encoding(
    layer: LinearLayer,
    matrix: Array,
    samples: Mapping[str, Samples],
    *,
    weight_levels: int = WEIGHT_LEVELS,
    signed: bool = False,
) -> ChosenEncoding:
    """Search strength and anchor, then copies, then how far the range reaches.

    Ranges of one half of the texts are tried on the other half, because a range that fits the seen texts exactly clips
    unseen ones. What was chosen is then made from all texts.
    """
    halved = {name: (samples[name].halved or samples[name]).thinned(SEARCH_ROWS) for name in layer.tensors}
    every = -(-matrix.size // SEARCH_WEIGHTS)
    trial = _LayerTrial(layer, matrix, halved, weight_levels, signed=signed, every=every)

    def lost(options: EncodingOptions) -> float:
        return trial.encoding(options).lost

    # A kernel that fuses attention rounds its result itself, but only if nothing has to be done to it before.
    strengths = (0.0,) if signed and layer.attended and not layer.values else STRENGTHS
    anchors = ANCHORS[1:] if signed else ANCHORS
    best = min((EncodingOptions(strength, anchor, 0) for strength in strengths for anchor in anchors), key=lost)
    for copies in COPIES if layer.hidden else ():
        wider = min((EncodingOptions(strength, best.anchor, copies) for strength in STRENGTHS[1:]), key=lost)
        if lost(wider) > WORTHWHILE_SHARE * lost(best):
            break
        best = wider
    reaches = [*trial.reaches(best).items(), *(("minmax", reach) for reach in WIDER_REACHES)]
    best = min((replace(best, method=method, reach=reach) for method, reach in reaches), key=lost)
    return _LayerTrial(layer, matrix, samples, weight_levels, signed=signed).compensated(best)


class _LayerTrial:
    """One layer with its samples, on which encodings are tried.

    Of the output channels one in `every` is used. Each token counts alike, because a layer norm follows.
    """

    def __init__(
        self,
        layer: LinearLayer,
        matrix: Array,
        samples: Mapping[str, Samples],
        weight_levels: int,
        *,
        signed: bool,
        every: int = 1,
    ) -> None:
        self._matrix, self._weight_levels = np.ascontiguousarray(matrix[:, ::every], np.float32), weight_levels
        self._signed = signed
        self._lowest, self._highest = (-SIGNED_LEVELS, SIGNED_LEVELS) if signed else (0, LEVELS)
        self._samples = {name: samples[name] for name in layer.tensors}
        self._exact = {name: sample.rows @ self._matrix for name, sample in self._samples.items()}
        self._energies = {name: np.maximum(np.square(rows).sum(1), 1e-12) for name, rows in self._exact.items()}
        low = np.min([sample.low for sample in self._samples.values()], axis=0)
        high = np.max([sample.high for sample in self._samples.values()], axis=0)
        self._low, self._high = widened_ranges(low, high)
        self._heights = np.maximum(np.abs(matrix).max(axis=1), 1e-9)
        self._known: dict[EncodingOptions, ChosenEncoding] = {}

    def encoding(self, options: EncodingOptions) -> ChosenEncoding:
        """Return the layer encoded so, each weight rounded by itself."""
        if options not in self._known:
            self._known[options] = self._encode(options)
        return self._known[options]

    def _encode(self, options: EncodingOptions) -> ChosenEncoding:
        low, high = self._low, self._high
        if not options.strength:
            high = np.maximum(np.abs(low), np.abs(high))
            low = -high
        width = np.maximum(high - low, 1e-6)
        counts = copies_of(np.square(width) * np.square(self._matrix).sum(axis=1), options.copies)
        divisor = np.ones_like(width)
        if options.strength:
            divisor = smoothing_divisor(width / counts, self._heights, options.strength, steepest=_STEEPEST)
        channels = np.repeat(np.arange(len(counts)), counts)
        factors = (1 / (counts * divisor))[channels].astype(np.float32)
        if self._signed:
            factors = in_fp16(factors)
        matrix = self._matrix[channels] / (factors * counts[channels])[:, None]
        scales = np.maximum(np.abs(matrix).max(axis=0), 1e-9) / self._weight_levels
        reach = float((width / counts / divisor).max()) * options.reach
        base = -low if options.anchor == "low" else -(low + high) / 2
        middle = reach / 2 if options.anchor == "middle" and not self._signed else 0.0
        offsets, step = base[channels] * factors + middle, reach / (self._highest - self._lowest)
        phases = np.concatenate([(np.arange(count) - (count - 1) / 2) / count for count in counts])
        offsets = (offsets + phases * step).astype(np.float32)
        if self._signed:
            offsets, step, scales = in_fp16(offsets / factors) * factors, float(fp16_scale(step)), fp16_scale(scales)
        return self._finished(
            ChosenEncoding(
                options=options,
                channels=channels,
                factors=factors,
                offsets=offsets,
                step=step,
                weights=np.rint(matrix / scales).astype(np.int8),
                scales=scales.astype(np.float32),
                correction=np.zeros(matrix.shape[1], np.float32),
                lost=0.0,
            )
        )

    def reaches(self, options: EncodingOptions) -> dict[RangeMethod, float]:
        """Return how far the range would reach by each method, as a share of all that was seen."""
        encoding = self.encoding(options)
        low = options.anchor == "low"
        whole = encoding.step * LEVELS if low else encoding.step * (self._highest - self._lowest) / 2
        middle = 0.0 if low or self._signed else whole
        values = np.concatenate([self._encoded(name, encoding) - middle for name in self._samples])
        return kept_shares(magnitude_counts(values, whole), LEVELS if low else LEVELS // 2)

    def compensated(self, options: EncodingOptions) -> ChosenEncoding:
        """Return the layer encoded so, where weights make good each other's rounding errors."""
        encoding = self._encode(options)
        counts = np.bincount(encoding.channels)[encoding.channels]
        matrix = self._matrix[encoding.channels] / (encoding.factors * counts)[:, None]
        weighted = [
            (self._rounded(name, encoding) - encoding.offsets) / np.sqrt(self._energies[name])[:, None]
            for name in self._samples
        ]
        levels = compensated_levels(matrix, encoding.scales, np.concatenate(weighted), largest=self._weight_levels)
        return self._finished(replace(encoding, weights=levels))

    def _encoded(self, name: str, encoding: Encoding) -> Array:
        return np.asarray(self._samples[name].rows[:, encoding.channels] * encoding.factors + encoding.offsets)

    def _rounded(self, name: str, encoding: Encoding) -> Array:
        """Return the activation as the integer product sees it, times the step."""
        levels = np.rint(self._encoded(name, encoding) / np.float32(encoding.step))
        levels = np.clip(levels, self._lowest, self._highest)
        return np.asarray(levels * np.float32(encoding.step), np.float32)

    def _finished(self, encoding: ChosenEncoding) -> ChosenEncoding:
        """Add the correction by output channel, and the share of each token's energy that is lost after it."""
        weights = encoding.weights * encoding.scales
        shift = encoding.offsets @ weights
        errors, lost, weight, tokens = np.zeros(weights.shape[1]), 0.0, 0.0, 0
        for name, exact in self._exact.items():
            error = self._rounded(name, encoding) @ weights - shift - exact
            energies = self._energies[name]
            errors += (error / energies[:, None]).sum(axis=0)
            weight += float((1 / energies).sum())
            lost += float((np.square(error).sum(axis=1) / energies).sum())
            tokens += len(exact)
        mean = errors / weight
        # The bias takes up the mean error, so what that adds to the loss is no loss.
        lost = max(0.0, lost - float(np.square(mean).sum()) * weight) / tokens
        return replace(encoding, correction=(-shift - mean).astype(np.float32), lost=lost)


def in_fp16(numbers: Array) -> Array:
    """Return the numbers as FP16 holds them."""
    return np.asarray(numbers, np.float16).astype(np.float32)


def fp16_scale(scale: Any) -> Any:
    """Return the scale as FP16 holds it, so that numbers are rounded with the very scale that undoes it."""
    return in_fp16(np.maximum(scale, _SMALLEST_SCALE))


def widened_ranges(low: Array, high: Array) -> tuple[Array, Array]:
    """Let narrow channels reach as far as most others of the layer, and never become wider than those are.

    Example: most channels go from -2 to 2. One from -0.5 to 0.8 becomes -2 to 2, one from 27 to 29 becomes 25 to 29.
    """
    width = np.quantile(high - low, LEAST_REACH_QUANTILE)
    lowest, highest = np.quantile(low, 1 - LEAST_REACH_QUANTILE), np.quantile(high, LEAST_REACH_QUANTILE)
    return (
        np.minimum(low, np.maximum(lowest, high - width)),
        np.maximum(high, np.minimum(highest, low + width)),
    )


def copies_of(burdens: Array, extra: int) -> npt.NDArray[np.int64]:
    """Return how often each channel stands, `extra` times more in all. n copies leave 1/n² of a channel's burden."""
    counts = np.ones(len(burdens), np.int64)
    for _ in range(extra):
        counts[np.argmax(burdens * (1 / counts**2 - 1 / (counts + 1) ** 2))] += 1
    return counts
