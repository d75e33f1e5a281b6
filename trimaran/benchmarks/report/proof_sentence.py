"""The one sentence of a report that a user can rely on: what the judging texts prove of the chosen candidate."""

from __future__ import annotations

from trimaran.benchmarks.report.wording import count, metric_name, number
from trimaran.core.metrics import METRICS_VERSION
from trimaran.core.tasks import METRICS, TAILS, Gate
from trimaran.judging.gate_check import CAP, GateCheck, kind_limit
from trimaran.judging.judgement import KindQuality, Quality
from trimaran.judging.on_teacher import TEACHER

_TAIL = "1 % tail of "
# Judgements by earlier metrics capped every mean.
_WHOLE_SINCE = 7


def proof_sentence(quality: Quality) -> str:
    """`95 % sure, for texts like these 1,200 of 20 kinds: mean 1−cos is at most 0.00061; …; 4 candidates judged.`

    Empty for judgements that were made before there were bounds.
    """
    if not quality.metrics_version:
        return ""
    like = f"{quality.n:,} texts" + (f" of {count(len(quality.kinds), 'kind')}" if quality.kinds else "")
    if quality.alpha is None:
        largest = quality.metrics.get("max_abs_difference", 0.0)
        same = "its answers are eager PyTorch's up to float noise"
        return f"On {like} {same}: no number differs by more than {number(largest)}."
    parts = [
        _bound_words(check, quality.metrics_version)
        for check in quality.checks
        if check.bound is not None and not check.kind
    ]
    worst = worst_kind(quality)
    if worst:
        kind, check = worst
        parts.append(f"the worst kind is {kind.kind} ({_kind_words(kind, check)})")
    if quality.vnni is not None:
        parts.append(f"on a CPU {'with' if quality.vnni else 'without'} VNNI")
    parts.append(f"{count(quality.judged, 'lossy candidate')} judged")
    return f"95 % sure of each, for texts like these {like.replace(' texts', '', 1)}: {'; '.join(parts)}."


def worst_kind(quality: Quality) -> tuple[KindQuality, GateCheck] | None:
    """The kind that comes nearest to a limit of a mean, or is furthest beyond it, and that gate."""
    means = [
        check for check in quality.checks if check.bound is not None and not check.kind and check.name not in TAILS
    ]
    pairs = [(kind, check) for kind in quality.kinds for check in means if check.name in kind.metrics]
    return max(pairs, key=lambda pair: _share_of_limit(*pair), default=None)


def _kind_words(kind: KindQuality, check: GateCheck) -> str:
    """What was measured on so few texts is no bound, and a mean has a wider limit there than over all texts."""
    metric = METRICS[check.name]
    seen = f"{metric_name(check.name)} {number(kind.metrics[check.name])} as measured on {count(kind.n, 'text')}"
    limit = kind_limit(metric, _gate_of(check))
    return seen if limit == check.limit else f"{seen}; the limit of a kind is {number(limit, digits=6)}"


def _share_of_limit(kind: KindQuality, check: GateCheck) -> float:
    value, limit = kind.metrics[check.name], float(check.limit)
    loss, allowed = (value, limit) if check.comparison == "<=" else (1 - value, 1 - limit)
    return loss / allowed if allowed else float(loss > 0)


def _bound_words(check: GateCheck, metrics_version: int = METRICS_VERSION) -> str:
    name, bound = metric_name(check.name), number(check.bound)
    plain_name = check.name.removeprefix(TEACHER)
    if plain_name in TAILS:
        return f"at most 1 % of the {check.texts} move by more than {bound} in {name.removeprefix(_TAIL)}"
    words = f"{name} is {'at most' if check.comparison == '<=' else 'at least'} {bound}"
    metric = METRICS.get(plain_name)
    # Points of the user's labelled data are no metric of the task.
    if metric is None or metric.kind != "mean":
        return words
    if metric.most is not None and metrics_version >= _WHOLE_SINCE:
        return words
    limit = float(check.limit)
    further = f"above {number(CAP * limit)}" if check.comparison == "<=" else f"below {number(1 - CAP * (1 - limit))}"
    return f"{words} (a text {further} counts as that)"


def _gate_of(check: GateCheck) -> Gate:
    return Gate(check.name.removeprefix(TEACHER), "<=" if check.comparison == "<=" else ">=", float(check.limit))
