"""Deploying the same again changes nothing; anything that could change the result deploys anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import trimaran
from tests.export import zoo
from tests.texts import judging_pairs
from trimaran.benchmarks.measure.runner import Measured
from trimaran.core.config import DeployConfig
from trimaran.pipeline import line
from trimaran.pipeline.plan import plan_deployment


def test_quick_leaves_out_searched_and_fused_candidates_unless_they_are_named(tmp_path: Path) -> None:
    model = str(zoo.saved_model(tmp_path / "model", "bert", "embedding"))
    full, quick = (plan_deployment(DeployConfig(model=model, quick=chosen)) for chosen in (False, True))
    unfused = [row.name for row in full.candidates if not (row.searched or row.fused)]
    assert [row.name for row in quick.candidates] == unfused
    assert len(quick.candidates) == 3 < len(full.candidates)
    named = plan_deployment(DeployConfig(model=model, quick=True, candidates=("openvino-int8-mixed",)))
    assert [row.name for row in named.candidates] == ["openvino-int8-mixed"]


@pytest.mark.slow
@pytest.mark.usefixtures("workers_here")
def test_the_same_deployment_changes_nothing_and_another_adds_a_version(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = zoo.saved_model(tmp_path / "model", "bert", "embedding")
    settings: dict[str, Any] = {
        "store": tmp_path / "store",
        "output": tmp_path / "repository",
        "report": tmp_path / "report",
        "candidates": ("onnxruntime-fused",),
        "judging": judging_pairs(tmp_path / "judging.jsonl"),
        "serve_check": False,
        "quick": True,
        "sequence": (1, 16, 32),
        "batch": (1, 2, 4),
        "show_progress": True,
    }
    first = trimaran.deploy(model, **settings)
    shown = capsys.readouterr().err
    # Every stage is numbered, and as many come as were announced.
    numbers = {line[1:].split("]")[0] for line in shown.splitlines() if line.startswith("[")}
    assert numbers == {f"{number} of 8" for number in range(1, 9)}
    assert not first.unchanged and trimaran.load(first.folder).encode("one text").shape == (32,)

    again = trimaran.deploy(model, **settings)
    assert again.unchanged and again.folder == first.folder
    assert again.report == first.report and again.facts()["unchanged"]
    assert capsys.readouterr().err == ""

    assert trimaran.deploy(model, **settings, force=True).deployment.version == 2
    assert trimaran.deploy(model, **{**settings, "fidelity": "balanced"}).deployment.version == 3
    # Its own version is no longer the newest, so it is made anew.
    assert trimaran.deploy(model, **settings).deployment.version == 4
    zoo.saved_model(model, "bert", "embedding", seed=1)
    assert not trimaran.deploy(model, **settings).unchanged


@pytest.mark.slow
@pytest.mark.usefixtures("workers_here")
def test_a_deployment_that_a_busy_machine_left_unmeasured_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    race = line.measure_candidates

    def disturbed(*arguments: Any, **options: Any) -> Measured:
        return race(*arguments, **options).model_copy(update={"busy": True, "measurements": ()})

    settings: dict[str, Any] = {
        "store": tmp_path / "store",
        "output": tmp_path / "repository",
        "report": tmp_path / "report",
        "candidates": ("onnxruntime-fp32", "onnxruntime-fused"),
        "judging": judging_pairs(tmp_path / "judging.jsonl"),
        "serve_check": False,
        "quick": True,
        "busy_ok": True,
        "sequence": (1, 16, 32),
        "batch": (1, 2, 4),
    }
    model = zoo.saved_model(tmp_path / "model", "bert", "embedding")
    monkeypatch.setattr(line, "measure_candidates", disturbed)
    assert "run again" in trimaran.deploy(model, **settings).report.verdict.speed
    monkeypatch.setattr(line, "measure_candidates", race)
    again = trimaran.deploy(model, **settings)
    assert not again.unchanged and again.report.verdict.difference is not None
    assert trimaran.deploy(model, **settings).unchanged
