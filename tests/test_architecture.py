"""The floor plan, read from the source: imports go downwards only, and heavy libraries load inside functions."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "trimaran"
# Folder to storey. A module may import from its own folder and from lower storeys, never from a neighbour.
RANKS = {
    "cli": 6,
    "pipeline": 5,
    "export": 4,
    "quantize": 4,
    "model_repository": 4,
    "serving": 4,
    "benchmarks": 4,
    "bulk": 4,
    "shrink": 4,
    "judging": 3,
    "core": 2,
    "runtime": 1,
}
HEAVY = {
    "torch", "transformers", "onnx", "onnxruntime", "openvino", "nncf", "tensorrt", "tensorrt_rtx", "tritonclient",
    "optimum", "ray", "pyarrow", "faiss", "pandas",
}  # fmt: skip
SOURCES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE)


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported_names(path: Path, *, top_only: bool = False) -> set[str]:
    """Dotted names that a file imports; imports for type checkers alone do not count."""
    tree = tree_of(path)
    for_type_checkers = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    names: set[str] = set()
    for node in tree.body if top_only else ast.walk(tree):
        if id(node) in for_type_checkers:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def imported_folders(path: Path) -> set[str]:
    return {name.split(".")[1] for name in imported_names(path) if name.startswith("trimaran.")} & set(RANKS)


def subclasses_torch(path: Path) -> bool:
    """Such a module needs torch at its top; its callers import it inside functions."""
    return "(torch.nn.Module)" in path.read_text(encoding="utf-8")


def name_in_package(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def test_every_folder_has_a_storey_and_the_root_holds_nothing_else() -> None:
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders == set(RANKS)
    files = {path.name for path in PACKAGE.iterdir() if path.is_file()}
    assert files == {"__init__.py", "__main__.py", "py.typed"}


@pytest.mark.parametrize("path", SOURCES, ids=name_in_package)
def test_imports_go_downwards_only(path: Path) -> None:
    folder = path.relative_to(PACKAGE).parts[0]
    upwards = {other for other in imported_folders(path) - {folder} if RANKS[other] >= RANKS[folder]}
    assert not upwards, f"{folder} may not import {', '.join(sorted(upwards))}"


@pytest.mark.parametrize("path", SOURCES, ids=name_in_package)
def test_heavy_libraries_are_imported_inside_functions(path: Path) -> None:
    loaded = {name.split(".")[0] for name in imported_names(path, top_only=True)}
    assert subclasses_torch(path) or not loaded & HEAVY


# Files that travel into Triton share three names. Triton asks for `TritonPythonModel`, and a stage asks its engine file
# for `Engine`. An engine file is copied without the others, so each has its own `Array`.
TRAVELLING = {"TritonPythonModel", "Engine", "Array"}


def type_names(path: Path) -> set[str]:
    """Classes and aliases of a module's top level that others may import. Type variables are no types."""
    names: set[str] = set()
    for node in tree_of(path).body:
        if isinstance(node, ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and not isinstance(node.value, ast.Call):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return {name for name in names if name[0].isupper() and not name.isupper()}


def test_a_type_has_a_name_of_its_own() -> None:
    places: dict[str, list[str]] = {}
    for path in SOURCES:
        for name in type_names(path):
            places.setdefault(name, []).append(name_in_package(path))
    assert len(places) > 500
    shared = {name: sorted(paths) for name, paths in places.items() if len(paths) > 1}
    assert {name: paths for name, paths in shared.items() if name not in TRAVELLING} == {}
    outside = {path for name in TRAVELLING for path in shared[name] if not path.startswith("runtime/")}
    assert outside == {"core/backends.py"}, "the protocol of all engines"


# Also slow to import, and needed by no command before it runs.
SLOW_AT_START = {*HEAVY, "numpy", "pydantic", "trimaran.core.spec"}


def test_help_loads_no_heavy_library() -> None:
    code = (
        "import sys; from trimaran.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        f"loaded = sorted(set(sys.modules) & {SLOW_AT_START!r})\n"
        "assert not loaded, loaded"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "deploy" in done.stdout
