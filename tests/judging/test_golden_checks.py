"""Few requests refute a gate where they must, and not by luck."""

from __future__ import annotations

import numpy as np
import pytest

from trimaran.core.tasks import Gate
from trimaran.judging.golden import Golden, make_golden
from trimaran.judging.golden_checks import whole_checks

LIMIT = 1.2e-3


def bundle(distances: list[float], *gates: Gate) -> tuple[Golden, dict[str, np.ndarray]]:  # type: ignore[type-arg]
    """Unit vectors of eager PyTorch, and served ones so far away from them."""
    angles = np.arange(len(distances), dtype=np.float64)
    turned = angles + np.arccos(1.0 - np.asarray(distances))
    wanted, served = (
        {"EMBEDDING": np.stack([np.cos(side), np.sin(side)], axis=1).astype(np.float32)} for side in (angles, turned)
    )
    golden = make_golden(
        task="embedding", model="m", reference="", numbers="embedding", rows=[{"TEXT": f"{n}"} for n in distances],
        wanted=wanted, proven=wanted, gates=gates,
    )  # fmt: skip
    return golden, served


@pytest.mark.parametrize(
    ("distances", "holds"),
    [
        pytest.param([1.1e-3] * 10, True, id="within the limit"),
        pytest.param([0.4e-3, 2.5e-3] * 5, True, id="ten requests that scatter around 1.2 times the limit"),
        pytest.param([1.4e-3] * 240, False, id="as many as a whole bundle, 1.17 times the limit"),
        pytest.param([0.16] * 3, False, id="three requests answered without their prompt"),
    ],
)
def test_a_mean_is_refuted_beyond_what_so_few_requests_may_show(distances: list[float], holds: bool) -> None:
    golden, served = bundle(distances, Gate("mean_cosine_distance", "<=", LIMIT))
    (check,) = whole_checks(golden, served)
    assert (check.holds, check.limit) == (holds, LIMIT)
    beyond = float(check.observed) > LIMIT
    assert ("as few requests may by chance" in str(check)) == (holds and beyond)
    assert f" {'>' if beyond else '≤'} " in str(check), "the sign is that of the value"


@pytest.mark.parametrize(("beyond", "holds"), [(1, True), (3, False)])
def test_one_request_of_sixty_may_lie_beyond_a_tail_of_one_percent_and_three_may_not(beyond: int, holds: bool) -> None:
    golden, served = bundle([0.02] * beyond + [0.0] * (60 - beyond), Gate("tail_cosine_distance", "<=", 0.01))
    assert [check.holds for check in whole_checks(golden, served)] == [holds]
