"""Every kind of text with its gated metrics, and what one kind may lose, as a report shows them."""

from __future__ import annotations

from collections.abc import Sequence

from trimaran.benchmarks.report.report import CandidateRow
from trimaran.benchmarks.report.wording import SIGNS, metric_name, number
from trimaran.core.tasks import METRICS, Gate
from trimaran.judging.gate_check import kind_limit


def kinds_table(row: CandidateRow) -> tuple[list[str], list[list[str]]] | None:
    """Heads and rows; ✕ where a kind breaks a gate. None for a candidate that statistics did not judge.

    Each candidate has its own table: all of them side by side would not fit a screen.
    """
    quality = row.quality
    if not (quality and quality.kinds and quality.alpha is not None):
        return None
    names = list(quality.kinds[0].metrics)
    cells = [
        [
            kind.kind,
            str(kind.n),
            *(("✕ " if name in kind.broken else "") + number(kind.metrics[name]) for name in names),
        ]
        for kind in quality.kinds
    ]
    return ["kind", "texts", *map(metric_name, names)], cells


def kind_limits_words(gates: Sequence[Gate]) -> str:
    """`The limit of one kind: mean 1−cos ≤ 0.0015.` Shares and tails have the limit of all texts."""
    wider = [
        f"{metric_name(gate.metric)} {SIGNS[gate.comparison]} {number(limit, digits=6)}"
        for gate in gates
        if (metric := METRICS.get(gate.metric)) and (limit := kind_limit(metric, gate)) != gate.limit
    ]
    return f"The limit of one kind: {'; '.join(wider)}." if wider else ""
