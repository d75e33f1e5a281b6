"""Triton's control API, asked of a Triton of canned answers."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.serving.triton.fake_triton import FakeTriton, fake_triton
from trimaran.core.errors import NotReady, RequestFailed
from trimaran.serving.triton import control
from trimaran.serving.triton.control import IndexEntry

INDEX = "/v2/repository/index"


@pytest.fixture
def triton() -> Iterator[FakeTriton]:
    with fake_triton() as fake:
        yield fake


def entry(version: str, state: str) -> dict[str, str]:
    return {"name": "m", "version": version, "state": state}


def test_what_was_never_loaded_has_no_state(triton: FakeTriton) -> None:
    triton.answers[INDEX] = (200, [entry("1", "READY"), {"name": "other"}])
    assert control.index(triton.address) == (IndexEntry("m", "1", "READY", ""), IndexEntry("other", "", "", ""))
    assert control.ready_versions(triton.address, "m") == {"1"}


def test_a_switch_is_done_when_the_new_version_alone_is_loaded(triton: FakeTriton) -> None:
    triton.answers[INDEX] = [
        (200, [entry("1", "READY"), entry("2", "LOADING")]),
        (200, [entry("1", "READY"), entry("2", "READY")]),
        (200, [entry("1", "UNLOADING"), entry("2", "READY")]),
        (200, [entry("1", "UNAVAILABLE"), entry("2", "READY")]),
    ]
    control.switched(triton.address, "m", 2)
    assert len(triton.requests) == 4


def test_a_version_that_never_ends_unloading_is_not_waited_for_without_end(triton: FakeTriton) -> None:
    triton.answers[INDEX] = (200, [entry("1", "UNLOADING"), entry("2", "READY")])
    control.switched(triton.address, "m", 2, drain_s=0.05)
    assert len(triton.requests) > 1


def test_a_switch_that_does_not_end_names_what_is_ready(triton: FakeTriton) -> None:
    triton.answers[INDEX] = (200, [entry("1", "READY")])
    with pytest.raises(NotReady, match="Wanted version 2 of m to be ready after 0 s, found 1"):
        control.switched(triton.address, "m", 2, timeout_s=0.0)


def test_a_refusal_gives_tritons_reason_without_its_traceback(triton: FakeTriton) -> None:
    triton.answers["/v2/repository/models/m/load"] = (400, {"error": "no\n  memory.\nAt:\n  model.py(3)"})
    with pytest.raises(RequestFailed, match=r"refused .*/load: no memory\.$") as caught:
        control.load(triton.address, "m")
    assert caught.value.status == 400


def test_finished_work_is_executions_and_successes_of_all_versions(triton: FakeTriton) -> None:
    version = {"execution_count": "3", "inference_stats": {"success": {"count": "5"}, "fail": {"count": "7"}}}
    triton.answers["/v2/models/m/stats"] = (200, {"model_stats": [version, {"inference_stats": {"success": {}}}]})
    assert control.finished(triton.address, "m", timeout_s=2.0) == 8


@pytest.mark.parametrize(("groups", "instances"), [([], 1), ([{"count": 1}, {"count": 2}], 3), ([{}], 1)])
def test_instances_of_all_groups_count(triton: FakeTriton, groups: list[dict[str, int]], instances: int) -> None:
    triton.answers["/v2/models/m/config"] = (200, {"instance_group": groups})
    assert control.instances(triton.address, "m") == instances


def test_silence_is_not_ready() -> None:
    with fake_triton() as gone:
        address = gone.address
    with pytest.raises(NotReady, match="gave no answer to"):
        control.unload(address, "m")


@pytest.mark.parametrize(
    ("living", "priorities", "whole"),
    [
        ({"m_0_0", "m_1_0"}, [1, 9], False),
        ({"m_1_0", "m_1_1"}, [2, 8], False),
        ({"other_0_0"}, [2, 9], False),
        ({"m_0_0", "m_1_0", "m_1_1"}, [1, 8], True),
    ],
    ids=["one of a group", "another group", "all", "none"],
)
def test_only_groups_that_lack_an_instance_are_changed(
    triton: FakeTriton, living: set[str], priorities: list[int], whole: bool
) -> None:
    groups = [
        {"name": "m_0", "count": 1, "rate_limiter": {"resources": [], "priority": 1}},
        {"name": "m_1", "count": 2, "rate_limiter": {"resources": [], "priority": 8}},
    ]
    triton.answers["/v2/models/m/config"] = (200, {"name": "m", "instance_group": groups})
    triton.answers["/v2/repository/models/m/load"] = (200, {})
    control.replace_instances(triton.address, "m", living)
    sent = json.loads(triton.requests[-1][1]["parameters"]["config"])
    assert [group["rate_limiter"]["priority"] for group in sent["instance_group"]] == priorities
    assert ("loaded_again" in sent.get("parameters", {})) == whole
