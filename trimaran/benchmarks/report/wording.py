"""How numbers and names are written for people: the same words in the terminal, Markdown and HTML."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from trimaran.benchmarks.scenarios.finals import ScenarioFigure
from trimaran.benchmarks.scenarios.results import ScenarioResult
from trimaran.core.artifact import Check, kept
from trimaran.core.choices import Rows
from trimaran.core.tasks import TASKS, Gate
from trimaran.judging.gate_check import GateCheck
from trimaran.judging.judgement import WIDEST_FIRST, Quality
from trimaran.judging.on_teacher import TEACHER
from trimaran.judging.stats import CONFIDENCE, FEWEST_ROUNDS, Ratio
from trimaran.runtime.text import PACKED_STEP, STEP

ROWS_WORDS = {
    "padded": "rows padded together",
    "packed": f"rows packed without padding, in attention padded to a multiple of {PACKED_STEP} tokens",
    "rounded": f"rows padded to a multiple of {STEP} tokens, only rows of one such length together",
    "equal-length": "only rows of equal length together",
    "alone": "each row by itself",
}
# The same policies as heads of columns, the widest grouping first.
ROWS_SHORT: dict[Rows, str] = {
    policy: {"padded": "padded together", "rounded": "rounded lengths", "equal-length": "equal length"}.get(
        policy, policy
    )
    for policy in WIDEST_FIRST
}
SIGNS = {"<=": "≤", ">=": "≥"}
VERDICT_MARKS = {
    "reference": "●",
    "baseline": "○",
    "chosen": "★",
    "passed": "✓",
    "rejected": "✕",
    "stopped": "–",
    "failed": "⚠",
}


@dataclass(frozen=True)
class MetricWords:
    short: str
    meaning: str


METRICS: dict[str, MetricWords] = {
    **{metric.name: MetricWords(*metric.words) for row in TASKS.values() for metric in row.metrics},
    "batch_change": MetricWords(
        "batch change", "worst change of one text's answer by the texts in its batch, as served"
    ),
}


# Metrics of the user's labelled data are named after the metric: data_accuracy, data_accuracy_change_points, …
LABELLED = "data_"
_LABELLED_WORDS = {
    "_eager": "{} of eager on labelled data",
    "_change_points": "{} change in points on labelled data",
    "_change_low_points": "{} change in points, low end",
    "": "{} on labelled data",
}


def metric_name(name: str) -> str:
    if name.startswith(TEACHER):
        return f"{metric_name(name.removeprefix(TEACHER))} to the teacher"
    if name.startswith(LABELLED):
        ending, words = next(pair for pair in _LABELLED_WORDS.items() if name.endswith(pair[0]))
        return words.format(name.removeprefix(LABELLED).removesuffix(ending))
    return METRICS[name].short if name in METRICS else name.replace("_", " ")


def number(value: float | int | str | None, *, digits: int = 3) -> str:
    """A few significant digits, without an exponent where people would not write one."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    if not math.isfinite(value):
        return "not finite"
    if 0.9 < value < 1:
        # Near 1 the distance to 1 is what matters: 0.9988 and 0.9999 are not "0.999" and "1".
        digits = min(7, max(digits, math.ceil(-math.log10(1 - value)) + 1))
    if 1e3 <= abs(value) < 1e7:
        return f"{value:,.0f}"
    if value == 0 or 1e-3 <= abs(value) < 1e3:
        return f"{value:.{digits}g}"
    mantissa, _, exponent = f"{value:.{digits - 1}e}".partition("e")
    if "." in mantissa:
        mantissa = mantissa.rstrip("0").rstrip(".")
    return f"{mantissa}e{int(exponent)}"


def short_number(value: float) -> str:
    """For a label in a plot, where room is scarce: `0.5`, `120`, `15k`, `2.5M`."""
    for size, unit in ((1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if unit == 'k' else size):.3g}{unit}"
    return f"{value:.4g}"


def gate_words(check: Check) -> str:
    """`top-10 overlap 0.971 ≥ 0.97`, or `… < 0.97`, with digits enough to tell the two apart.

    The sign is that of the value: a value that keeps its limit may not be proven to.
    """
    observed, limit = _told_apart(check)
    signs = {"<=": ("≤", ">"), ">=": ("≥", "<"), "==": ("=", "≠")}
    sign = signs[check.comparison][0 if kept(check.observed, check.comparison, check.limit) else 1]
    if isinstance(check.observed, str):
        return f"{metric_name(check.name)} {observed} (limit {limit})"
    return f"{metric_name(check.name)} {observed} {sign} {limit}"


def limit_words(gate: Gate) -> str:
    return f"{SIGNS[gate.comparison]} {number(gate.limit, digits=6)}"


def gates_words(gates: tuple[Gate, ...]) -> str:
    return "; ".join(f"{metric_name(gate.metric)} {limit_words(gate)}" for gate in gates)


def bound_words(check: Check) -> str:
    """`up to 0.00064`: the one-sided bound that decides; nothing where the value decides."""
    bound = check.bound if isinstance(check, GateCheck) else None
    if bound is None:
        return ""
    return f"{'up to' if check.comparison == '<=' else 'at least'} {number(bound)}"


def environment_words(variables: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in variables.items())


def broken_words(check: GateCheck) -> str:
    """`top-10 overlap 0.913 is below its limit 0.97`, of one kind of text where the others keep it.

    Not proven: `mean 1−cos 0.0011 keeps its limit 0.0012, but is not proven (up to 0.0013): needs 832 texts, has 460`.
    """
    observed, limit = _told_apart(check)
    name = metric_name(check.name) + (f" of {check.kind} texts" if check.kind else "")
    if check.verdict == "not proven":
        end = f" ({'up' if check.comparison == '<=' else 'down'} to {number(check.bound, digits=4)})"
        needs = check.needs_words or "no number of texts like these would prove it"
        if check.name.startswith(LABELLED):
            return f"{name} {observed} is not proven to keep {limit}: {needs}"
        return f"{name} {observed} keeps its limit {limit}, but is not proven{end}: {needs}"
    relation = {"<=": "above", ">=": "below", "==": "not"}[check.comparison]
    if isinstance(check.observed, str):
        return f"{name} is {observed}, its limit is {limit}"
    return f"{name} {observed} is {relation} its limit {limit}"


def interval_words(quality: Quality, name: str, *, digits: int = 3) -> str:
    """`0.972–0.985`, or nothing for a metric without an interval."""
    if name not in quality.intervals:
        return ""
    low, high = quality.intervals[name]
    return f"{number(low, digits=digits)}–{number(high, digits=digits)}"


def metric_words(quality: Quality | None, name: str, *, digits: int = 3) -> str:
    """`0.979 (0.972–0.985)`: the metric with its interval, where it has one."""
    value = quality.metrics.get(name) if quality else None
    between = interval_words(quality, name, digits=digits) if quality and value is not None else ""
    return number(value, digits=digits) + (f" ({between})" if between else "")


def times(ratio: Ratio | float) -> str:
    return f"{ratio.median if isinstance(ratio, Ratio) else ratio:.2f}×"


# What `interval` writes, for captions.
INTERVAL_WORDS = (
    f"the median over rounds of the ratio within a round, with its {CONFIDENCE:.0%} interval; where fewer than "
    f"{FEWEST_ROUNDS} rounds ran, the range of those rounds, which covers less"
)


def interval(ratio: Ratio) -> str:
    """`2.58–2.66`, or `2.58–2.66, 2 rounds` where they are too few for the usual confidence."""
    few = f", {count(ratio.rounds, 'round')}" if 0 < ratio.rounds < FEWEST_ROUNDS else ""
    return f"{ratio.low:.2f}–{ratio.high:.2f}{few}"


def ratio_words(ratio: Ratio | None) -> str:
    """`2.61× (2.58–2.66)`, or a dash where nothing was measured."""
    return f"{times(ratio)} ({interval(ratio)})" if ratio else "–"


def figure_words(figure: ScenarioFigure) -> str:
    """`p50 latency 5.71 ms (5.6–5.8)`."""
    between = ""
    if figure.low is not None and figure.high is not None:
        between = f" ({number(figure.low)}–{number(figure.high)})"
    return f"{figure.name} {number(figure.value)} {figure.unit}{between}"


def level_words(result: ScenarioResult) -> str:
    """Where a scenario was run: `served over grpc`."""
    words = {"engine": "tensors in", "pipeline": "text in", "served": "served"}[result.at]
    return f"{words} over {result.wire}" if result.wire else words


def milliseconds(value_ns: float) -> str:
    value = value_ns / 1e6
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def megabytes(size_bytes: int | None) -> str:
    if not size_bytes:
        return "–"
    value = size_bytes / 1e6
    return f"{value:.2g} MB" if value < 1 else f"{value:.1f} MB" if value < 10 else f"{value:.0f} MB"


def gigabytes(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.1f} GiB"


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else "none"


def _told_apart(check: Check) -> tuple[str, str]:
    limit = number(check.limit, digits=6)
    for digits in range(3, 12):
        observed = number(check.observed, digits=digits)
        if observed != limit or check.observed == check.limit:
            return observed, limit
    return str(check.observed), limit
