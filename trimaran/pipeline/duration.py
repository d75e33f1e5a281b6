"""About how long a deployment takes: said before it begins, and corrected by its own pace while it runs."""

from __future__ import annotations

from collections.abc import Mapping

from trimaran.core.progress import ExpectedStage
from trimaran.pipeline.plan import LANES, DeployPlan

# Seconds of a stage on two quiet cores: what every model costs, and what a model of MiniLM's size adds.
_EXPORT, _LIBRARY, _EAGER = (7.0, 2.0), (5.0, 1.0), (4.0, 12.0)
_FUSING, _CANDIDATE = (2.0, 1.0), (5.0, 6.0)
_MINILM_SIZE = 6 * 384**2
# A race lasts as long as its budget, plus the start of its processes.
_RACE_S, _QUICK_RACE_S, _GOLDEN_S, _SERVED_S, _LAYOUT_S = 35.0, 12.0, 3.0, 8.0, 1.0
# A search rarely takes all of its budget.
_SHARE_OF_BUDGET = 0.6


def expected_stages(plan: DeployPlan) -> Mapping[str, ExpectedStage]:
    """The stages of a deployment by title. Those that run side by side add a share of their time only."""
    size = plan.ref.layers * plan.ref.hidden**2 / _MINILM_SIZE

    def stage(cost: tuple[float, float], extra_s: float = 0.0) -> ExpectedStage:
        seconds = cost[0] + cost[1] * size + extra_s
        return ExpectedStage(seconds, seconds / LANES)

    alone = {
        "measure": _QUICK_RACE_S if plan.config.quick else _RACE_S,
        "golden bundle": _GOLDEN_S,
        **({"served check": _SERVED_S} if plan.config.serve_check else {}),
        "model repository": _LAYOUT_S,
    }
    export_s = _EXPORT[0] + _EXPORT[1] * size
    return {
        "export": ExpectedStage(export_s, export_s),
        "as your library answers": stage(_LIBRARY),
        "eager answers": stage(_EAGER),
        **({"teacher's answers": stage(_EAGER)} if plan.teacher else {}),
        **({"labelled data": stage(_EAGER)} if plan.data else {}),
        **({"optimize": stage(_FUSING)} if any(row.fused for row in plan.candidates) else {}),
        **{
            row.name: stage(_CANDIDATE, _SHARE_OF_BUDGET * plan.config.budget if row.searched else 0.0)
            for row in plan.candidates
        },
        **{title: ExpectedStage(seconds, seconds) for title, seconds in alone.items()},
    }
