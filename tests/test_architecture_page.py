"""docs/architecture.md names files and functions: every one of them exists, and the picture has the real storeys."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.test_architecture import RANKS

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PATHS = sorted(set(re.findall(r"`((?:trimaran|tests|docs|benchmarks)/[^`]+|CHANGELOG\.md)`", PAGE)))
STEPS = re.findall(r"^\| `([^`]+\.py)` \| `(\w+)` \|", PAGE, re.MULTILINE)


def defined_names(path: Path) -> set[str]:
    """Functions, classes and constants of a module's top level."""
    names: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def test_the_page_names_files_and_steps() -> None:
    assert len(PATHS) > 30
    assert len(STEPS) > 20


@pytest.mark.parametrize("path", PATHS)
def test_every_path_on_the_page_exists(path: str) -> None:
    """`<task>` stands for any file of its folder."""
    assert list(ROOT.glob(path.rstrip("/").replace("<task>", "*")))


@pytest.mark.parametrize(("path", "name"), STEPS)
def test_every_function_of_a_walk_is_in_its_file(path: str, name: str) -> None:
    assert name in defined_names(ROOT / path)


def test_the_picture_has_every_folder_at_its_storey() -> None:
    picture = PAGE.partition("```\n")[2].partition("```")[0]
    shown = {
        folder: int(line.split()[0])
        for line in picture.splitlines()
        if line.strip()[:1].isdecimal()
        for folder in RANKS
        if re.search(rf"\b{folder}\b", re.split(r"\s{3,}", line.strip())[0])
    }
    assert shown == RANKS
