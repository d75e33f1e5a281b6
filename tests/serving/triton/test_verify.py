"""What is served is held to its golden bundle as a whole, and for each prompt and kind of text."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

from trimaran.core.corpus import kinds_of, shipped_texts
from trimaran.core.errors import QualityError
from trimaran.core.tasks import Gate
from trimaran.judging.golden import Golden, make_golden
from trimaran.serving.client.question import Ask, Model
from trimaran.serving.client.synchronous import Client
from trimaran.serving.triton.verify import require_faithful, verify

TEXTS = shipped_texts("judging")[:: len(shipped_texts("judging")) // 12][:12]
LIMITS = (Gate("mean_cosine_distance", "<=", 0.5), Gate("batch_change", "<=", 1e-5))


def vector(text: str) -> list[float]:
    return [float(len(text)), 1.0, float(text.count("e"))]


class FakeClient:
    """Answers each text by its vector, turned round where a request's prompt is in `wrong`."""

    def __init__(self, wrong: str = "") -> None:
        self._wrong = wrong

    def ask(self, name: str, build: Callable[[Model], Ask[Any]]) -> Any:
        plan = build(Model(name, "embedding", 64, frozenset({"TEXT"}), {"EMBEDDING": (3,)}, {}))
        return plan.join([self._answer(request) for request in plan.requests])

    def _answer(self, request: Any) -> dict[str, Any]:
        pairs = zip(request["TEXT"].ravel(), request["OPTIONS"].ravel(), strict=True)
        rows = [
            np.asarray(vector(text.decode())) * (-1 if self._wrong and self._wrong.encode() in options else 1)
            for text, options in pairs
        ]
        return {"EMBEDDING": np.asarray(rows, np.float32)}


def bundle(*, own_answers: bool = True) -> Golden:
    options = ("", json.dumps({"prompt": "query"}), "", "")
    rows = [{"TEXT": text, "OPTIONS": options[place % 4]} for place, text in enumerate(TEXTS)]
    answers = {"EMBEDDING": np.asarray([vector(text) for text in TEXTS], np.float32)}
    golden = make_golden(
        task="embedding", model="m", reference="", numbers="embedding", rows=rows, wanted=answers, proven=answers,
        gates=LIMITS,
    )  # fmt: skip
    return golden if own_answers else golden.model_copy(update={"proven": ()})


def test_each_prompt_and_kind_is_checked() -> None:
    found = verify(cast(Client, FakeClient()), "m", bundle())
    assert found.holds
    kinds = {f"kind {kind}" for kind in kinds_of(TEXTS)}
    assert len(kinds) > 1 and set(found.by_group) == {"prompt (default)", "prompt query", *kinds}
    assert {check.name for check in found.by_group["prompt query"]} == {"mean_cosine_distance"}


def test_a_broken_prompt_is_named_although_the_whole_keeps_its_limits() -> None:
    """A quarter of the requests is turned round: a mean of 0.5 over all, 2 with this prompt."""
    found = verify(cast(Client, FakeClient(wrong="query")), "m", bundle())
    assert all(check.holds for check in found.checks) and not found.holds
    with pytest.raises(QualityError, match=r"mean_cosine_distance 2, wanted <= 0\.5 of 3 requests, prompt query"):
        require_faithful(found)


def test_a_bundle_of_before_is_checked_as_a_whole() -> None:
    assert verify(cast(Client, FakeClient()), "m", bundle(own_answers=False)).by_group == {}
