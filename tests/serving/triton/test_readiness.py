"""Which answers to a canary count, decided on a Triton of canned answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.serving.triton.fake_triton import FakeTriton, fake_triton
from trimaran.core.errors import NotReady
from trimaran.serving.triton import readiness
from trimaran.serving.triton.ports import choose

CONFIG = {
    "max_batch_size": 4,
    "input": [
        {"name": "TEXT", "data_type": "TYPE_STRING", "dims": ["1"]},
        {"name": "OPTIONS", "data_type": "TYPE_STRING", "dims": ["1"], "optional": True},
        {"name": "input_ids", "data_type": "TYPE_INT64", "dims": ["-1"]},
        {"name": "attention_mask", "data_type": "TYPE_INT64", "dims": ["-1"]},
    ],
    "dynamic_batching": {"priority_levels": "2"},
}


@pytest.fixture
def triton() -> Iterator[FakeTriton]:
    with fake_triton() as fake:
        fake.answers["/v2/models/m/config"] = (200, CONFIG)
        yield fake


def answered(*numbers: float, datatype: str = "FP32") -> tuple[int, Any]:
    return 200, {"outputs": [{"name": "EMBEDDING", "datatype": datatype, "data": list(numbers)}]}


@pytest.mark.parametrize("answer", [answered(0.0, 0.5), answered(), answered(0, 0, datatype="INT64")])
def test_a_sensible_answer_passes(triton: FakeTriton, answer: tuple[int, Any]) -> None:
    triton.answers["/v2/models/m/infer"] = answer
    readiness.send_canary(triton.port, "m")


@pytest.mark.parametrize("answer", [answered(0.0, 0.0), answered(1.0, float("nan")), answered(float("inf"))])
def test_zeros_and_numbers_that_are_not_finite_do_not_pass(triton: FakeTriton, answer: tuple[int, Any]) -> None:
    triton.answers["/v2/models/m/infer"] = answer
    with pytest.raises(NotReady, match="senseless EMBEDDING") as caught:
        readiness.send_canary(triton.port, "m")
    assert (caught.value.model, caught.value.status) == ("m", 200)


def test_a_refusal_carries_its_status_and_reason(triton: FakeTriton) -> None:
    triton.answers["/v2/models/m/infer"] = (503, {"error": "the queue is full"})
    with pytest.raises(NotReady, match=r"status 503.*the queue is full") as caught:
        readiness.send_canary(triton.port, "m")
    assert caught.value.status == 503


def test_no_server_means_no_status() -> None:
    port = choose(http=None, grpc=None, metrics=None).http
    with pytest.raises(NotReady, match="gave no answer") as caught:
        readiness.send_canary(port, "m", timeout_s=5)
    assert caught.value.status is None
    assert not readiness.is_ready(port)


def test_a_canary_fills_what_is_required_and_attends_to_its_tokens(triton: FakeTriton) -> None:
    triton.answers["/v2/models/m/infer"] = answered(1.0)
    readiness.send_canary(triton.port, "m", priority=1)
    _, request = triton.requests[-1]
    assert request["parameters"] == {"priority": 1}
    inputs = {item["name"]: item for item in request["inputs"]}
    assert set(inputs) == {"TEXT", "input_ids", "attention_mask"}
    assert (inputs["TEXT"]["datatype"], inputs["TEXT"]["shape"]) == ("BYTES", [1, 1])
    assert (inputs["attention_mask"]["data"], inputs["input_ids"]["data"]) == ([1] * 4, [0] * 4)


def test_a_model_without_priorities_is_sent_none(triton: FakeTriton) -> None:
    triton.answers["/v2/models/m/config"] = (200, {**CONFIG, "dynamic_batching": {}})
    triton.answers["/v2/models/m/infer"] = answered(1.0)
    readiness.send_canary(triton.port, "m", priority=1)
    assert "parameters" not in triton.requests[-1][1]


def test_only_ready_models_are_loaded_ones(triton: FakeTriton) -> None:
    entries = [{"name": "b", "version": "1", "state": "READY"}, {"name": "a", "version": "1", "state": "READY"}]
    triton.answers["/v2/repository/index"] = (200, [*entries, {"name": "c"}, {"name": "d", "state": "UNAVAILABLE"}])
    assert readiness.loaded_models(triton.address) == ("a", "b")
    triton.answers["/v2/health/ready"] = (200, {})
    assert readiness.is_ready(triton.port)
