from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def readme() -> ModuleType:
    spec = importlib.util.spec_from_file_location("readme", ROOT / "benchmarks" / "readme.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["readme"] = module
    spec.loader.exec_module(module)
    return module


def test_the_readme_shows_the_figures_of_the_committed_report(readme: ModuleType) -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = page.partition(readme.BEGIN)[2].partition(readme.END)[0].strip()
    assert shown == readme.figures_block(), "run `python benchmarks/readme.py`"


def test_the_picture_is_that_of_the_committed_report(readme: ModuleType) -> None:
    path = readme.RESULTS / readme.SHOWN / "speedup.svg"
    assert path.read_text(encoding="utf-8") == readme.picture(readme.read_report(readme.RESULTS / readme.SHOWN))


def test_every_command_of_the_readme_exists() -> None:
    import re

    from typer.main import get_command

    from trimaran.cli import _register_commands, app

    _register_commands()
    known = set(get_command(app).commands)  # type: ignore[attr-defined]
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^trimaran ([a-z-]+)", page, flags=re.MULTILINE))
    assert named and named <= known
