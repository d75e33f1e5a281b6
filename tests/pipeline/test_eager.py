"""Eager PyTorch's answers are remembered in the store, so that another deployment of the model does not ask again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.export import zoo
from tests.export.exported import reference_of
from trimaran.core.artifact import Artifact
from trimaran.core.config import DeployConfig
from trimaran.core.progress import SilentProgress
from trimaran.core.store import Store
from trimaran.pipeline import eager
from trimaran.pipeline.eager import eager_answers
from trimaran.pipeline.plan import DeployRun, plan_deployment

VECTORS = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> tuple[DeployRun, Artifact]:
    root = tmp_path_factory.mktemp("eager")
    model = zoo.saved_model(root / "model", "bert", "embedding")
    plan = plan_deployment(DeployConfig(model=str(model), threads=1))
    return DeployRun(plan, Store(root), SilentProgress()), reference_of(plan.ref, root, profile=plan.profile)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The texts of every call that reaches eager PyTorch."""
    calls: list[Any] = []

    def reference_answers(reference: Artifact, texts: Any, **options: Any) -> dict[str, Any]:
        calls.append(texts)
        return {"embedding": VECTORS}

    monkeypatch.setattr(eager, "reference_answers", reference_answers)
    return calls


def test_the_same_texts_are_asked_once_and_give_the_same_bits(
    deployment: tuple[DeployRun, Artifact], tmp_path: Path, asked: list[Any]
) -> None:
    run, reference = replace(deployment[0], store=Store(tmp_path)), deployment[1]
    first, second = (eager_answers(run, reference).judging for _ in range(2))
    assert first["embedding"].tobytes() == second["embedding"].tobytes() == VECTORS.tobytes()
    assert asked == [run.plan.judging]
    others = replace(run, plan=replace(run.plan, judging=run.plan.judging[:3]))
    eager_answers(others, reference)
    eager_answers(replace(run, store=Store(tmp_path, force=True)), reference)
    assert asked[1:] == [others.plan.judging, run.plan.judging], "other texts, or --force, ask again"


def test_answers_that_are_too_large_are_not_kept(
    deployment: tuple[DeployRun, Artifact], tmp_path: Path, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eager, "_MOST_KEPT_BYTES", 100)
    run = replace(deployment[0], store=Store(tmp_path))
    for _ in range(2):
        eager_answers(run, deployment[1])
    assert len(asked) == 2
