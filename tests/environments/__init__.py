"""Environments of their own, for libraries that do not go together with ours: `make environments` makes them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_FOLDER = Path(os.environ.get("TRIMARAN_TEST_ENVIRONMENTS", ROOT / ".envs"))


def python_of(name: str) -> Path:
    """Its interpreter; skips the test where the environment was not made."""
    python = _FOLDER / name / "bin" / "python"
    if not python.exists():
        pytest.skip(f"there is no environment {python.parent.parent}; `make environments` makes it")
    return python


def run_in(name: str, script: Path, *arguments: str, **variables: str) -> str:
    """What the script printed in that environment."""
    done = subprocess.run(
        [str(python_of(name)), str(script), *arguments],
        env={**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": "", **variables},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
