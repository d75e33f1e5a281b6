"""A metric, defined once by text; its value, its interval and its gate all derive from that definition.

A metric compares the answers of a reference with those of a candidate. `by_text` gives one row for each text, and the
statistic makes one number of the rows. What the INT8 search works towards, what the proof judges, what the report
shows and what `trimaran verify` checks is then the same number.

    Metric("mean_cosine_distance", by_text=...)                     # the mean over texts
    Metric("label_agreement", by_text=..., kind="share")            # the share of texts, each 0 or 1
    Metric("tail_cosine_distance", by_text=..., kind="tail")        # at most 1 % of texts exceed it
    Metric("worst_cosine_distance", by_text=..., kind="worst")      # the largest of any text
    Metric("rank_correlation", by_text=..., kind="pooled", pooled=spearman_of_pairs)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from trimaran.core.distances import Answers, Column
from trimaran.core.tail import tail_bound

ByText = Callable[[Answers, Answers], Column]
Kind = Literal["mean", "share", "tail", "worst", "pooled"]
# Raise this when a metric or its bound changes its meaning: judgements remembered under another version are not reused.
METRICS_VERSION = 8


@dataclass(frozen=True)
class Metric:
    """One number about how true a candidate is."""

    name: str
    # (reference, candidate) -> one row for each text.
    by_text: ByText
    # What the rows become: their mean, a share (rows of 0 and 1), the bound that hardly any text exceeds, the worst, or
    # what `pooled` makes of all of them.
    kind: Kind = "mean"
    pooled: Callable[[Column], float] | None = None
    # (reference, candidate, texts) -> the rows that so many texts would have, foreseen from fewer. None: as `by_text`.
    foreseen: Callable[[Answers, Answers, int], Column] | None = None
    # Whether more is better: a limit is then a floor.
    at_least: bool = False
    # Which texts speak, where not all do: a text without an entity says nothing of entities. And what to call them.
    counted: Callable[[Answers, Answers], npt.NDArray[np.bool_]] | None = None
    texts: str = "texts"
    # Fewer texts that speak prove no gate of a lossy candidate, whatever their bound is.
    fewest: int = 0
    # Of a mean: the most that one text can lose, where it counts whole. None: changes far beyond the limit count as
    # less, because a gate on their tail speaks of them.
    most: float | None = None
    # Answers that the metric reads by name. Where a side lacks one, as a caller does who sees only final answers, the
    # metric cannot be taken.
    needs: tuple[str, ...] = ()
    # A few words for tables, and what it means; metrics that several tasks share have theirs in `_SHARED_WORDS`.
    title: str = ""
    meaning: str = ""

    @property
    def words(self) -> tuple[str, str]:
        return (self.title, self.meaning) if self.title else _SHARED_WORDS[self.name]

    @property
    def comparison(self) -> Literal["<=", ">="]:
        return ">=" if self.at_least else "<="

    def readable(self, *sides: Answers) -> bool:
        return all(name in side for side in sides for name in self.needs)

    def statistic(self, rows: Column) -> float:
        if self.pooled is not None:
            return self.pooled(rows)
        if self.kind in ("mean", "share"):
            # No text that speaks: nothing was seen to differ, and no bound will prove anything by it.
            return float(rows.mean()) if len(rows) else float(self.at_least)
        if self.kind == "tail":
            return tail_bound(rows)
        # A NaN is an answer that is no number: nothing is worse.
        return float("inf") if np.isnan(rows).any() else float(rows.max(initial=0.0))

    def rows(self, reference: Answers, candidate: Answers) -> Column:
        """One row for each text that speaks."""
        rows = self.by_text(reference, candidate)
        return rows if self.counted is None else rows[self.counted(reference, candidate)]

    def value(self, reference: Answers, candidate: Answers) -> float:
        return self.statistic(self.rows(reference, candidate))


_SHARED_WORDS: dict[str, tuple[str, str]] = {
    "mean_cosine_distance": ("mean 1−cos", "mean cosine distance of a text's vector to eager's"),
    "worst_cosine_distance": ("worst 1−cos", "cosine distance of the text that moved most"),
    "tail_cosine_distance": (
        "1 % tail of 1−cos",
        "cosine distance that at most 1 % of texts exceed, with 95 % confidence",
    ),
    "tail_similarity_change": (
        "1 % tail of |Δ similarity|",
        "change of a similarity to one of the ten nearest that at most 1 % of texts exceed, with 95 % confidence",
    ),
    "rank_correlation": (
        "rank correlation",
        "Spearman correlation of the similarities of related and unrelated pairs, or of the scores",
    ),
    "max_abs_difference": ("max |Δ|", "largest difference of one output number"),
    "label_agreement": ("same label", "share of texts that get eager's label"),
    "mean_probability_change": ("mean |Δp|", "mean change of a label's probability"),
    "worst_probability_change": ("worst |Δp|", "largest change of a label's probability"),
    "tail_probability_change": (
        "1 % tail of |Δp|",
        "change of a label's probability that at most 1 % of texts exceed, with 95 % confidence",
    ),
    "token_agreement": ("same token", "share of tokens that get eager's answer"),
}


def values_of(metrics: tuple[Metric, ...], reference: Answers, candidate: Answers) -> dict[str, float]:
    """The value of each metric that both sides can show."""
    return {
        metric.name: metric.value(reference, candidate) for metric in metrics if metric.readable(reference, candidate)
    }


def spearman(a: Column, b: Column) -> float:
    from scipy.stats import rankdata

    return float(np.corrcoef(rankdata(a), rankdata(b))[0, 1])


def spearman_of_pairs(rows: Column) -> float:
    """Spearman correlation over all (reference, candidate) pairs in the last axis; 1 where fewer than three texts.

    A pair without a reference is left out. A candidate that is no number makes the correlation none.
    """
    if len(rows) < 3:
        return 1.0
    pairs = rows.reshape(-1, rows.shape[-1])
    pairs = pairs[~np.isnan(pairs[:, 0])]
    return spearman(pairs[:, 0], pairs[:, 1])


def drawn_rows(rows: Column, texts: npt.NDArray[np.intp]) -> Column:
    """The rows of texts that were drawn with replacement.

    Rows of pairs may have a third number: which text the other one is. It is of the same sample, so a pair is there as
    often as both of its texts were drawn. Example: one drawn twice and one drawn three times have their pair six times.
    """
    if rows.ndim < 3 or rows.shape[-1] < 3:
        return rows[texts]
    times = np.bincount(texts, minlength=len(rows))
    others = rows[..., 2].astype(np.intp)
    return np.repeat(rows.reshape(-1, rows.shape[-1]), (times[:, None] * times[others]).ravel(), axis=0)
