"""What a candidate can be at best, asked in a child process before much time is spent on it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

from trimaran.benchmarks.report.figures import decisive
from trimaran.core import isolation
from trimaran.core.artifact import Artifact, Recipe
from trimaran.core.candidates import Candidate
from trimaran.core.environment import capture, tools
from trimaran.core.errors import TrimaranError
from trimaran.core.spec import Frozen
from trimaran.core.store import Store
from trimaran.pipeline.plan import Plan

PROBE_DEADLINE_S = 60.0
# Of a graph whose float candidates take minutes to judge.
LARGE_BYTES = 200_000_000
# A bare product by one library may be beaten by another's kernel; a whole graph of integer kernels is as it is.
_SLOWER = {True: 1.0, False: 1.15}
_REASON = {
    True: "It was not searched: with every layer in INT8 it would take",
    False: "It was not judged: its matrix products alone, in float, would take",
}
Rival = tuple[Candidate, Artifact]


class Bound(Frozen):
    """At each shape that the choice rests on: the time that a candidate takes at best, over a rival's."""

    ratios: tuple[float, ...]


def bounded(plan: Plan, row: Candidate, graph: Artifact) -> bool:
    """Whether it waits for all others, because one of them may show that it cannot win.

    A float candidate of a small model is judged within seconds, and many want to see it in the report; so does whoever
    asks for it by name.
    """
    asked = bool(plan.config.candidates) or graph.size_bytes < LARGE_BYTES
    return bool(row.bound) and (row.searched or not asked)


def no_chance(plan: Plan, row: Candidate, parent: Artifact, proven: Sequence[Rival], *, store: Store) -> str:
    """Why more work would be in vain: at best the candidate is no faster than a searched one that keeps every gate.

    What was found is remembered, so that a second run has the same contenders.
    """
    shapes = decisive(plan.profile, plan.config.objective)
    rivals = [(one, artifact) for one, artifact in proven if one.searched]
    if not row.bound or not rivals or any(shape.batch != 1 for shape in shapes):
        return ""
    rival, faster = rivals[0]
    weight_levels, _ = isolation.first_restriction_that_runs(
        lambda restriction: largest_weight(row.backend, tuple(sorted(restriction.items())))
    )
    asked: dict[str, Any] = {"sequences": [shape.sequence for shape in shapes], "weight_levels": weight_levels}

    def measured() -> Bound:
        folders: dict[str, Any] = {"parent": str(parent.directory), "rival": str(faster.directory)}
        return Bound(ratios=isolation.run(row.bound, deadline_s=PROBE_DEADLINE_S, **folders, **asked))

    recipe = Recipe(
        step="bound",
        parents=(parent.digest, faster.digest),
        # All float candidates have the same products.
        parameters={**asked, "candidate": row.name if row.searched else row.precision, "cpu": capture().cpu},
        tools=tools("onnxruntime", "openvino"),
    )
    try:
        ratios = store.remember(recipe, Bound, measured)[0].ratios
    except TrimaranError:
        # It is then made and judged as any other, and says itself what is wrong.
        return ""
    # As the choice does: one figure for all shapes that it rests on.
    overall = math.prod(ratios) ** (1 / len(ratios))
    if overall < _SLOWER[row.searched]:
        return ""
    where = ", ".join(f"{ratio:.2f} at {shape}" for ratio, shape in zip(ratios, shapes, strict=True))
    return (
        f"{_REASON[row.searched]} {overall:.2f} times as long as {rival.name}, which keeps every gate "
        f"({where}; processor time on one thread)."
    )


@cache
def largest_weight(backend: str, restriction: tuple[tuple[str, str], ...]) -> int:
    """Asked once for each engine and instruction set: a CPU does not change."""
    return int(
        isolation.run(
            "trimaran.quantize.int8.saturation:largest_weight",
            deadline_s=PROBE_DEADLINE_S,
            environment=dict(restriction),
            backend=backend,
        )
    )
