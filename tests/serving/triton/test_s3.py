"""Triton serves a repository out of S3, and `verify`, the gateway and `pull` read it there."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.environments import ROOT, run_in
from tests.serving.worlds import TEXTS, by_hand
from tests.tiny import tiny_artifact
from trimaran.core.tasks import Gate
from trimaran.judging.golden import make_golden
from trimaran.model_repository.layout import lay_out


@pytest.mark.slow
def test_a_repository_in_s3_is_served_verified_asked_and_pulled(tmp_path: Path) -> None:
    answers = {"EMBEDDING": by_hand(TEXTS)}
    golden = make_golden(
        task="embedding",
        model="tiny",
        reference="",
        numbers="embedding",
        rows=[{"TEXT": text} for text in TEXTS],
        wanted=answers,
        proven=answers,
        gates=(Gate("mean_cosine_distance", "<=", 1e-6), Gate("batch_change", "<=", 1e-5)),
    )
    artifact = tiny_artifact(tmp_path / "s")
    lay_out(artifact, repository=tmp_path / "r", name="m", rows="alone", threads=1, golden=golden)
    script = ROOT / "tests" / "environments" / "in_s3.py"
    said = run_in("s3", script, str(tmp_path / "r"), "m", PYTHONPATH=str(ROOT), TRIMARAN_HOME=str(tmp_path / "home"))
    found = json.loads(said.splitlines()[-1])
    (verified,) = found["verify"]["said"]["models"]
    assert verified["holds"] and verified["rows"] == len(TEXTS)
    assert {name: found[name]["exit"] for name in ("verify", "pull", "check", "absent", "serve")} == {
        **{"verify": 0, "pull": 0, "check": 0},
        **{"absent": 2, "serve": 2},
    }
    assert "does not exist" in found["absent"]["error"] and "trimaran pull s3://" in found["serve"]["error"]
    np.testing.assert_allclose(found["embedding"], by_hand(["the cat sat"])[0], atol=1e-5)
