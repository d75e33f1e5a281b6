"""What the judging texts prove of one candidate: each gate by its bound, each kind of text, what each text lost."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from trimaran.core.distances import Answers, Column
from trimaran.core.metrics import Metric
from trimaran.core.tasks import Gate, Task
from trimaran.judging.bounds import ALPHA
from trimaran.judging.gate_check import (
    GateCheck,
    gate_check,
    kind_breaks,
    kind_limit,
    kinds_of_answers,
    point_check,
)
from trimaran.judging.judgement import KindQuality

# Of the largest number: a candidate that differs by less computes the same, but for the rounding of floats.
FLOAT_NOISE = 1e-4
_LARGEST_DIFFERENCE = "max_abs_difference"
# Digits of what each text lost, as it is stored.
_DIGITS = 4


class Proof:
    """`kinds` are those of the judged rows; `judged` lossy candidates share the error of 5 %.

    Only a candidate that is not `lossy` may equal the reference up to float noise: beside one huge number in the
    answers, the losses of INT8 would pass for noise.
    """

    def __init__(
        self,
        row: Task,
        gates: Sequence[Gate],
        reference: Answers,
        candidate: Answers,
        *,
        kinds: Sequence[str] = (),
        judged: int = 1,
        lossy: bool = False,
    ) -> None:
        self._sides = reference, candidate
        metrics = {metric.name: metric for metric in row.metrics if metric.readable(reference, candidate)}
        self._gated = [(metrics[gate.metric], gate) for gate in gates if gate.metric in metrics]
        self._by_text = {metric.name: metric.by_text(reference, candidate) for metric, _ in self._gated}
        self._kinds = np.asarray(kinds)
        # None: it equals the reference up to float noise, and needs no statistics.
        self.alpha = None if not lossy and _only_noise(row, reference, candidate) else ALPHA / judged

    @cached_property
    def checks(self) -> tuple[GateCheck, ...]:
        """One for each gate, and one more for each kind of text that breaks one which the texts together do not."""
        whole = [gate_check(metric, gate, self._rows(metric), alpha=self.alpha) for metric, gate in self._gated]
        broken = [
            point_check(gate, kind.metrics[gate.metric]).model_copy(
                update={"limit": kind_limit(metric, gate), "verdict": "broken", "kind": kind.kind, "n": kind.n}
            )
            for kind in self.kinds
            for (metric, gate), check in zip(self._gated, whole, strict=True)
            if gate.metric in kind.broken and check.verdict != "broken"
        ]
        return (*whole, *broken)

    @property
    def breaks_a_gate(self) -> bool:
        """Over all texts: a kind that breaks one does so however its rows are run."""
        return any(check.verdict == "broken" and not check.kind for check in self.checks)

    @cached_property
    def kinds(self) -> tuple[KindQuality, ...]:
        return tuple(self._of_kind(str(kind)) for kind in dict.fromkeys(self._kinds.tolist()))

    @property
    def bounds(self) -> dict[str, float]:
        return {check.name: check.bound for check in self.checks if check.bound is not None}

    @property
    def losses(self) -> dict[str, tuple[float, ...]]:
        """By gated metric; those whose rows are no single numbers (pairs of similarities) have none."""
        return {
            name: tuple(float(f"{value:.{_DIGITS}g}") for value in rows)
            for name, rows in self._by_text.items()
            if rows.ndim == 1
        }

    def _of_kind(self, kind: str) -> KindQuality:
        values, broken = {}, []
        for metric, gate in self._gated:
            rows = self._rows(metric, kind)
            values[metric.name] = metric.statistic(rows)
            if self.alpha is not None and kind_breaks(metric, gate, rows, ALPHA):
                broken.append(metric.name)
        return KindQuality(kind=kind, n=int((self._kinds == kind).sum()), metrics=values, broken=tuple(broken))

    def _rows(self, metric: Metric, kind: str | None = None) -> Column:
        """Rows of the texts that speak, of one kind or of all."""
        rows = self._by_text[metric.name]
        chosen = np.ones(len(rows), bool) if metric.counted is None else metric.counted(*self._sides)
        if kind is not None:
            chosen = chosen & (kinds_of_answers(self._kinds, len(rows)) == kind)
        return np.asarray(rows[chosen])


def _only_noise(row: Task, reference: Answers, candidate: Answers) -> bool:
    metric = row.metric(_LARGEST_DIFFERENCE)
    if metric is None or not metric.readable(reference, candidate):
        return False
    numbers = [side for side in reference.values() if isinstance(side, np.ndarray) and side.dtype.kind == "f"]
    largest = max((float(np.abs(side[np.isfinite(side)]).max(initial=0.0)) for side in numbers), default=1.0)
    return metric.value(reference, candidate) <= FLOAT_NOISE * largest
