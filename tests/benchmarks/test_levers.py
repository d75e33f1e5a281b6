from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from tests.tiny import tiny_artifact
from trimaran.benchmarks.measure.runner import Effort
from trimaran.core.progress import SilentProgress
from trimaran.core.samples import Shape

QUICK = Effort(rounds=1, minimum_rounds=1, losing_rounds=1, minimum_time_s=0.0, warmup_time_s=0.0)


@pytest.fixture
def levers(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    monkeypatch.delitem(sys.modules, "levers", raising=False)
    return import_module("levers")


def test_a_lever_is_timed_beside_the_engine_as_it_is_and_its_answers_are_compared(
    levers: ModuleType, tmp_path: Path
) -> None:
    artifact = tiny_artifact(tmp_path / "store", backend="openvino")
    (pinning,) = [lever for lever in levers.levers_for(artifact) if lever.name == "threads pinned"]
    shape = Shape(batch=1, sequence=8)
    with SilentProgress().stage("race") as step:
        (row,) = levers.raced(artifact, [pinning], shape, QUICK, tmp_path, step)
    assert (row["lever"], row["shape"]) == ("threads pinned", "1x8")
    assert row["low"] <= row["ratio"] <= row["high"]
    assert levers.changes(artifact, [pinning], 12)["threads pinned"]["max_abs_difference"] == 0


def test_only_the_levers_of_the_own_engine_are_pulled(levers: ModuleType, tmp_path: Path) -> None:
    found = levers.levers_for(tiny_artifact(tmp_path, backend="onnxruntime"))
    assert found and {lever.backend for lever in found} == {"onnxruntime"}
    names = [(lever.backend, lever.name) for lever in levers.LEVERS]
    assert len(set(names)) == len(names)
