"""Chooses, layer by layer, how an activation becomes 8-bit whole numbers, by what the layer's own result loses.

Three things are searched, all of which change nothing before rounding: a factor by channel, which moves the difficulty
between activations and weights (SmoothQuant); an offset by channel, so that every channel uses all levels from 0 on;
and copies of the few channels whose range is far above the others', where the activation can be widened. Copies of a
channel are offset by parts of a step: together they round as one channel with that many times as many levels
(Hermite's identity), and still all is one integer product.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from trimaran.quantize.activations import Samples, smoothing_divisor
from trimaran.quantize.int8.weight_rounding import compensated_levels
from trimaran.quantize.linear_layers import Layer
from trimaran.quantize.ranges import RangeMethod, kept_shares, magnitude_counts

Array = npt.NDArray[Any]
Anchor = Literal["low", "middle"]
LEVELS = 255
WEIGHT_LEVELS = 127
STRENGTHS = (0.5, 0.65, 0.8, 0.9, 1.0)
ANCHORS: tuple[Anchor, ...] = ("low", "middle")
# Multiples of the range seen that leave room for what was not: beside those of `ranges`, which may clip.
ROOM = (1.1, 1.25)
COPIES = (32, 64)
# Copies cost time: they are made only where they leave at most this share of the loss.
WORTH = 0.8
# Tokens on which the search tries, and about how many of the layer's weights, as whole output channels drawn evenly;
# what was chosen is made with all of them.
SEARCH_ROWS = 320
SEARCH_WEIGHTS = 600_000
_STEEPEST = 256.0


@dataclass(frozen=True)
class _Choice:
    """How far to smooth, which end of a channel's range stays put when the reach changes, how many copies, and how far
    the range reaches by which method."""

    strength: float
    anchor: Anchor
    copies: int
    method: RangeMethod = "minmax"
    reach: float = 1.0


@dataclass(frozen=True)
class Encoding:
    """What an integer graph is written from: round((x[channels]·factors + offsets) / step), from 0 to 255.

    `weights` are the whole numbers of the layer's matrix, with one scale an output channel; `correction` is what is
    added to the result by output channel, for the offsets and for the mean error.
    """

    channels: Array
    factors: Array
    offsets: Array
    step: float
    weights: Array
    scales: Array
    correction: Array

    @property
    def copies(self) -> int:
        """How many places more than channels there are."""
        return len(self.channels) - int(self.channels.max()) - 1


@dataclass(frozen=True)
class ChosenEncoding(Encoding):
    """Integers that a search chose, and what they lose of each token's energy."""

    choice: _Choice
    lost: float

    def facts(self) -> dict[str, Any]:
        return {
            "smoothing": self.choice.strength,
            "anchor": self.choice.anchor,
            "range": self.choice.method,
            "reach": round(self.choice.reach, 4),
            "copies": self.choice.copies,
            "relative_error": round(self.lost, 6),
        }


def choose_encoding(
    layer: Layer, matrix: Array, samples: Mapping[str, Samples], *, weight_levels: int = WEIGHT_LEVELS
) -> ChosenEncoding:
    """The best of a search over strength, anchor, copies, then how far the range reaches.

    Ranges of one half of the texts are tried on the other half, because a range that fits the seen texts exactly
    clips the unseen ones; what was chosen is then made from all texts.
    """
    seen = {name: (samples[name].halved or samples[name]).thinned(SEARCH_ROWS) for name in layer.tensors}
    half = _Trial(layer, matrix, seen, weight_levels, every=-(-matrix.size // SEARCH_WEIGHTS))

    def lost(choice: _Choice) -> float:
        return half.encoding(choice).lost

    first = (_Choice(strength, anchor, 0) for strength in STRENGTHS for anchor in ANCHORS)
    best = min(first, key=lost)
    for copies in COPIES if layer.hidden else ():
        wider = min((_Choice(strength, best.anchor, copies) for strength in STRENGTHS[1:]), key=lost)
        if lost(wider) > WORTH * lost(best):
            break
        best = wider
    reaches = [*half.reaches(best).items(), *(("minmax", reach) for reach in ROOM)]
    best = min((replace(best, method=method, reach=reach) for method, reach in reaches), key=lost)
    return _Trial(layer, matrix, samples, weight_levels).compensated(best)


class _Trial:
    """One layer with its samples; each token counts alike, because a layer norm follows. Of its output channels one
    in `every` is looked at.
    """

    def __init__(
        self, layer: Layer, matrix: Array, samples: Mapping[str, Samples], weight_levels: int, *, every: int = 1
    ) -> None:
        self._matrix, self._weight_levels = np.ascontiguousarray(matrix[:, ::every], np.float32), weight_levels
        self._samples = {name: samples[name] for name in layer.tensors}
        self._wanted = {name: found.rows @ self._matrix for name, found in self._samples.items()}
        self._powers = {name: np.maximum(np.square(rows).sum(1), 1e-12) for name, rows in self._wanted.items()}
        self._low = np.min([found.low for found in self._samples.values()], axis=0)
        self._high = np.max([found.high for found in self._samples.values()], axis=0)
        self._heights = np.maximum(np.abs(matrix).max(axis=1), 1e-9)
        self._known: dict[_Choice, ChosenEncoding] = {}

    def encoding(self, choice: _Choice) -> ChosenEncoding:
        if choice not in self._known:
            self._known[choice] = self._encoding(choice)
        return self._known[choice]

    def _encoding(self, choice: _Choice) -> ChosenEncoding:
        width = np.maximum(self._high - self._low, 1e-6)
        counts = copies_of(np.square(width) * np.square(self._matrix).sum(axis=1), choice.copies)
        divisor = smoothing_divisor(width / counts, self._heights, choice.strength, steepest=_STEEPEST)
        channels = np.repeat(np.arange(len(counts)), counts)
        matrix = (self._matrix * divisor[:, None])[channels]
        scales = np.maximum(np.abs(matrix).max(axis=0), 1e-9) / self._weight_levels
        factors = (1 / (counts * divisor))[channels].astype(np.float32)
        reach = float((width / counts / divisor).max()) * choice.reach
        base = -self._low if choice.anchor == "low" else -(self._low + self._high) / 2
        offsets = base[channels] * factors + (reach / 2 if choice.anchor == "middle" else 0.0)
        step = reach / LEVELS
        phases = np.concatenate([(np.arange(count) - (count - 1) / 2) / count for count in counts])
        return self._finished(
            ChosenEncoding(
                choice=choice,
                channels=channels,
                factors=factors,
                offsets=(offsets + phases * step).astype(np.float32),
                step=step,
                weights=np.rint(matrix / scales).astype(np.int8),
                scales=scales.astype(np.float32),
                correction=np.zeros(matrix.shape[1], np.float32),
                lost=0.0,
            )
        )

    def reaches(self, choice: _Choice) -> dict[RangeMethod, float]:
        """How far the range would reach by each method, as a share of all that was seen."""
        found = self.encoding(choice)
        whole = found.step * LEVELS if choice.anchor == "low" else found.step * LEVELS / 2
        middle = 0.0 if choice.anchor == "low" else whole
        values = [
            sampled.rows[:, found.channels] * found.factors + found.offsets - middle
            for sampled in self._samples.values()
        ]
        levels = LEVELS if choice.anchor == "low" else LEVELS // 2
        return kept_shares(magnitude_counts(np.concatenate(values), whole), levels)

    def compensated(self, choice: _Choice) -> ChosenEncoding:
        """The encoding with its weights rounded one for another."""
        found = self._encoding(choice)
        counts = np.bincount(found.channels)[found.channels]
        matrix = self._matrix[found.channels] / (found.factors * counts)[:, None]
        weighted = [
            (self._rounded(name, found) - found.offsets) / np.sqrt(self._powers[name])[:, None]
            for name in self._samples
        ]
        levels = compensated_levels(matrix, found.scales, np.concatenate(weighted), largest=self._weight_levels)
        return self._finished(replace(found, weights=levels))

    def _rounded(self, name: str, found: ChosenEncoding) -> Array:
        """The activation as the integer product sees it, in the encoding's own units."""
        values = self._samples[name].rows[:, found.channels] * found.factors + found.offsets
        levels = np.clip(np.rint(values / np.float32(found.step)), 0, LEVELS)
        return np.asarray(levels * np.float32(found.step), np.float32)

    def _finished(self, found: ChosenEncoding) -> ChosenEncoding:
        """With the correction by output channel, and the share of each token's energy that is lost after it."""
        rounded = found.weights * found.scales
        shift = found.offsets @ rounded
        errors, lost, weight, tokens = np.zeros(rounded.shape[1]), 0.0, 0.0, 0
        for name, wanted in self._wanted.items():
            error = self._rounded(name, found) @ rounded - shift - wanted
            powers = self._powers[name]
            errors += (error / powers[:, None]).sum(axis=0)
            weight += float((1 / powers).sum())
            lost += float((np.square(error).sum(axis=1) / powers).sum())
            tokens += len(wanted)
        mean = errors / weight
        # What the mean error adds to the loss goes into the bias; the rest stays.
        lost = max(0.0, lost - float(np.square(mean).sum()) * weight) / tokens
        return replace(found, correction=(-shift - mean).astype(np.float32), lost=lost)


def copies_of(burden: Array, extra: int) -> npt.NDArray[np.int64]:
    """How often each channel stands, `extra` places more than channels: n copies leave 1/n² of its burden."""
    counts = np.ones(len(burden), np.int64)
    for _ in range(extra):
        counts[np.argmax(burden * (1 / counts**2 - 1 / (counts + 1) ** 2))] += 1
    return counts


def choose_encodings(
    layers: Sequence[Layer],
    matrices: Mapping[str, Array],
    samples: Mapping[str, Samples],
    *,
    weight_levels: int = WEIGHT_LEVELS,
    advance: Callable[[int, int, str], None] = lambda done, total, what: None,
) -> dict[str, ChosenEncoding]:
    found = {}
    for done, layer in enumerate(layers):
        advance(done, len(layers), f"scales of {layer.name}")
        matrix = np.concatenate([matrices[name] for name in layer.weights], axis=1)
        found[layer.name] = choose_encoding(layer, matrix, samples, weight_levels=weight_levels)
    return found
