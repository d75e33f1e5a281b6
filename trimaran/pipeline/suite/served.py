"""Runs one scenario of a suite over the wire, against a live Triton or gateway."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from trimaran.benchmarks.scenarios import results
from trimaran.benchmarks.scenarios.results import ScenarioResult, TextsUsed
from trimaran.benchmarks.scenarios.settings import SuiteUnit
from trimaran.core.errors import TrimaranError
from trimaran.core.progress import Step
from trimaran.pipeline.suite.load_driver import LoadDriver, ServedTarget, statistics
from trimaran.pipeline.suite.served_scenarios import SCENARIOS, ServedScenario
from trimaran.runtime.text import Text


def run_served(
    unit: SuiteUnit,
    *,
    target: ServedTarget,
    head: Mapping[str, Any],
    texts: Sequence[Text],
    used: TextsUsed | None,
    step: Step | None = None,
) -> ScenarioResult:
    """One result. A server that dies in the middle leaves what it had answered, and `cut` says so."""
    assert unit.wire is not None
    driver = LoadDriver(target, unit.wire, texts)
    try:
        scenario = ServedScenario(
            driver,
            facts={**head, "at": "served", "wire": unit.wire, "target": target.kind, "texts": used},
            texts=len(texts),
            statistics=partial(statistics, target),
            advance=step.advance if step else lambda done, total, what: None,
        )
        return SCENARIOS[unit.asked.scenario](scenario, unit.asked)
    finally:
        driver.close()


def unreached(error: TrimaranError, unit: SuiteUnit, facts: Mapping[str, Any], target: ServedTarget) -> ScenarioResult:
    """An empty result for a server that could not be asked at all."""
    kinds: dict[str, Callable[..., ScenarioResult]] = {
        "single-stream": lambda **head: results.SingleStream(**head, rounds=()),
        "offline": lambda **head: results.Offline(**head, passes=()),
        "closed-loop": lambda **head: results.ClosedLoop(**head, points=()),
        "open-loop": lambda **head: results.OpenLoop(
            **head, budget_ms=getattr(unit.asked, "budget_ms", 0.0), points=()
        ),
    }
    return kinds[unit.asked.scenario](
        **facts, at="served", wire=unit.wire, target=target.kind, cut=str(error), cut_by="server", driver="none"
    )
