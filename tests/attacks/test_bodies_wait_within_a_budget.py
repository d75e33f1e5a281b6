"""Bodies were read before admission, as many at a time as there were connections."""

from __future__ import annotations

import pytest

from trimaran.serving.gateway.admission import MemoryBudget
from trimaran.serving.gateway.refusals import Refusal


def test_bodies_beyond_the_budget_are_refused_before_they_are_read() -> None:
    budget = MemoryBudget(100)
    with budget.holding(50, "a"), budget.holding(50, "b"):
        with pytest.raises(Refusal) as refused, budget.holding(1, "c"):
            pass
        assert (refused.value.status, refused.value.retry_after_s) == (503, 1.0)
    with budget.holding(100, "c"):
        pass


def test_one_caller_takes_at_most_half_and_leaves_everything_behind() -> None:
    budget = MemoryBudget(100)
    with budget.holding(40, "greedy"):
        with pytest.raises(Refusal), budget.holding(20, "greedy"):
            pass
        with budget.holding(60, "modest"):
            pass
    assert not budget._held
