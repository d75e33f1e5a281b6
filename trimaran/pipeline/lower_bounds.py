"""Skips a candidate whose best possible time is no better than that of one already proven.

The best possible time is measured in a child process, before time is spent on making or judging the candidate:
- a searched INT8 candidate: its graph with every layer in INT8, which the search can only make slower;
- a float candidate: the matrix products of its linear layers alone, without the rest of the graph.

A lossy candidate of a large model that is made without a search is timed itself, before it is judged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Literal, NamedTuple

from trimaran.benchmarks.measure.quiet import CpuWatch, noticed
from trimaran.benchmarks.report.figures import decisive
from trimaran.core import isolation
from trimaran.core.artifact import Artifact, Recipe
from trimaran.core.environment import capture, tools
from trimaran.core.errors import TrimaranError
from trimaran.core.instructions import instruction_limit
from trimaran.core.spec import Frozen
from trimaran.core.store import Store
from trimaran.pipeline.plan import DeployPlan
from trimaran.quantize.candidates import Candidate, MeasuresLowerBound
from trimaran.quantize.int8 import saturation
from trimaran.quantize.made_time import made_time

PROBE_DEADLINE_S = 60.0
# Opening a graph of gigabytes takes as long as many calls.
_SECONDS_PER_GB = 60.0
# From this size of the graph on, judging a float candidate takes minutes.
LARGE_BYTES = 200_000_000
# How many times slower the bound must be. Another library's kernel may beat the float products that were measured;
# a whole graph of integer kernels has no such doubt.
SkipKind = Literal["searched", "float", "made"]
_SKIPPED_FROM: Mapping[SkipKind, float] = {"searched": 1.0, "float": 1.15, "made": 1.15}
_REASON: Mapping[SkipKind, str] = {
    "searched": "It was not searched: with every layer in INT8 it would take",
    "float": "It was not judged: its matrix products alone, in float, would take",
    "made": "It was not judged: it takes",
}


class Rival(NamedTuple):
    """A candidate that keeps every gate, and needs no restriction of the instruction set."""

    candidate: Candidate
    artifact: Artifact


class LowerBound(Frozen):
    """For each shape that decides the choice: the candidate's least time over the rival's."""

    ratios: tuple[float, ...]


def waits_for_rivals(plan: DeployPlan, row: Candidate, graph: Artifact) -> bool:
    """Whether the candidate comes last, because a rival may show that it cannot win.

    Of small models only searched candidates wait: judging takes seconds, and reports show the others. A candidate that
    the user named does not wait.
    """
    shown_anyway = bool(plan.config.candidates) or graph.size_bytes < LARGE_BYTES
    return row.lower_bound is not None if row.searched else not shown_anyway


def reason_to_skip(plan: DeployPlan, row: Candidate, parent: Artifact, rivals: Sequence[Rival], *, store: Store) -> str:
    """Return the reason not to make or not to judge this candidate, or ""."""
    if row.lower_bound is None:
        return ""
    return _too_slow(plan, row, parent, rivals, row.lower_bound, "searched" if row.searched else "float", store=store)


def reason_not_to_judge(
    plan: DeployPlan, row: Candidate, made: Artifact, rivals: Sequence[Rival], *, store: Store
) -> str:
    """Return the reason not to judge a candidate that is made and has no lower bound, or ""."""
    return "" if row.lower_bound else _too_slow(plan, row, made, rivals, made_time, "made", store=store)


def _too_slow(
    plan: DeployPlan,
    row: Candidate,
    parent: Artifact,
    rivals: Sequence[Rival],
    lower_bound: MeasuresLowerBound,
    kind: SkipKind,
    *,
    store: Store,
) -> str:
    """The measurement is stored, so that a second run decides the same, unless other work ran beside it."""
    shapes = decisive(plan.profile, plan.config.objective)
    rival = next((rival for rival in rivals if rival.candidate.searched), None)
    if rival is None or any(shape.batch != 1 for shape in shapes):
        return ""
    settings: dict[str, Any] = {
        "sequences": [shape.sequence for shape in shapes],
        "weight_levels": weight_levels(row.backend),
    }

    def measured() -> LowerBound:
        folders = str(parent.directory), str(rival.artifact.directory)
        deadline_s = PROBE_DEADLINE_S + _SECONDS_PER_GB * parent.size_bytes / 1e9
        return LowerBound(ratios=tuple(isolation.run(lower_bound, deadline_s, *folders, **settings)))

    recipe = Recipe(
        step="bound",
        parents=(parent.digest, rival.artifact.digest),
        # All float candidates have the same matrix products, so they share one bound.
        parameters={
            **settings,
            "candidate": row.precision if kind == "float" else row.name,
            "cpu": capture().cpu,
            **instruction_limit(),
        },
        tools=tools("onnxruntime", "openvino"),
    )
    watch = CpuWatch(())
    try:
        ratios = store.remember(
            recipe, LowerBound, measured, keep=lambda bound: plan.config.busy_ok or not noticed(watch.others_share())
        )[0].ratios
    except TrimaranError:
        # The candidate is then made and judged as usual, and reports its own failure.
        return ""
    # The choice, too, takes the geometric mean over its shapes.
    overall = math.prod(ratios) ** (1 / len(ratios))
    if overall < _SKIPPED_FROM[kind]:
        return ""
    by_shape = ", ".join(f"{ratio:.2f} at {shape}" for ratio, shape in zip(ratios, shapes, strict=True))
    return (
        f"{_REASON[kind]} {overall:.2f} times as long as {rival.candidate.name}, which keeps every gate "
        f"({by_shape}; processor time on one thread)."
    )


def weight_levels(backend: str) -> int:
    """For the widest instruction set that runs here: an advertised one may die of SIGILL."""
    levels, _ = isolation.first_restriction_that_runs(
        lambda restriction: largest_weight(backend, tuple(sorted(restriction.items())))
    )
    return levels


@cache
def largest_weight(backend: str, restriction: tuple[tuple[str, str], ...]) -> int:
    """The largest whole number of an INT8 weight whose products do not saturate on this CPU."""
    with isolation.Worker(environment=dict(restriction)) as worker:
        return worker.call(saturation.largest_weight, PROBE_DEADLINE_S, backend=backend)
