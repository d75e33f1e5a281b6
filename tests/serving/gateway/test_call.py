"""What the gateway counts before it asks, and what it leaves to the model."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from trimaran.serving.gateway.admission import RateLimiter
from trimaran.serving.gateway.call import Call
from trimaran.serving.gateway.settings import RequestLimits
from trimaran.serving.gateway.vocabulary import TokenCount


@pytest.mark.parametrize(
    ("texts", "limits", "is_left_to_the_model"),
    [
        (["the cat"], RequestLimits(), True),
        (["the cat"] * 3, RequestLimits(tokens=1535), False),
        (["the cat"] * 3, RequestLimits(tokens=1536), True),
        (["x" * 8193], RequestLimits(), False),
    ],
    ids=["short", "may exceed a limit", "cannot exceed it", "long"],
)
def test_only_a_short_request_within_every_limit_is_tokenised_by_the_model_alone(
    texts: list[str], limits: RequestLimits, is_left_to_the_model: bool
) -> None:
    counted: list[Any] = []

    def count(asked: Any, **options: Any) -> TokenCount:
        counted.append(asked)
        return TokenCount(tokens=9, truncated=0, characters=9)

    class Room:
        async def __aenter__(self) -> None: ...
        async def __aexit__(self, *error: object) -> None: ...

    gateway: Any = SimpleNamespace(
        settings=SimpleNamespace(limits=limits),
        text_rates=RateLimiter(None),
        counting=SimpleNamespace(room=lambda *asked, **options: Room()),
    )
    served: Any = SimpleNamespace(vocabulary=SimpleNamespace(longest=512, count=count))
    call = Call(gateway, "id", {}, 0.0)
    is_counted = asyncio.run(call.check_size(served, texts, whole=False, times=1, prompt=None, model_counts=True))
    assert (is_counted, bool(counted)) == (not is_left_to_the_model, not is_left_to_the_model)
    assert call.work >= len(texts)
