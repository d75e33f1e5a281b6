"""The command line as a user runs it: a process of its own, with a home of its own."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trimaran.cli import main

COMMAND = [sys.executable, "-m", "trimaran"]
ROOT = Path(__file__).parent.parent


def environment(home: Path) -> dict[str, str]:
    return {**os.environ, "TRIMARAN_HOME": str(home), "COLUMNS": "120", "HF_HUB_OFFLINE": "1"}


def trimaran(
    *arguments: object, home: Path, cwd: Path | None = None, module: str = "trimaran"
) -> subprocess.CompletedProcess[str]:
    """`module` runs in place of the command: one of the tests that changes a fact about the machine first."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)],
        env={**environment(home), "PYTHONPATH": path} if module != "trimaran" else environment(home),
        cwd=cwd or home.parent,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


def trimaran_here(*arguments: object, home: Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The same command in this process, which holds the libraries already: seconds less, where no process is tested."""
    words, out, errors = [str(argument) for argument in arguments], io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.chdir(cwd or home.parent),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(errors),
    ):
        for name, value in environment(home).items():
            patch.setenv(name, value)
        try:
            main(words)
            code = 0
        except SystemExit as ended:
            code = int(ended.code or 0)
    return subprocess.CompletedProcess(words, code, out.getvalue(), errors.getvalue())


def trimaran_json_here(*arguments: object, home: Path, cwd: Path | None = None) -> Any:
    """As `trimaran_json`, in this process."""
    done = trimaran_here(*arguments, "--json", home=home, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def trimaran_json(*arguments: object, home: Path, cwd: Path | None = None, module: str = "trimaran") -> Any:
    """What the command printed, which must be one JSON object and nothing else."""
    done = trimaran(*arguments, "--json", home=home, cwd=cwd, module=module)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
