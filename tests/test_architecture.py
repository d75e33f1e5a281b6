"""The rules of direction, read from the source: who may import whom, and what is never imported at the top."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "trimaran"
PARTS = ("export", "quantize", "model_repository", "serving", "gateway", "benchmarks", "bulk")
ABOVE_THE_PARTS = (
    "pipeline",
    "promotion",
    "planning",
    "contenders",
    "chances",
    "measuring",
    "benching",
    "suite_server",
    "suite_walk",
    "suite_bench",
    "cli_bench",
    "stages",
    "schemas",
    "cli",
    "cli_stages",
    "cli_make",
    "cli_init",
    "cli_look",
    "cli_report",
    "cli_serving",
    "cli_versions",
    "cli_gateway",
    "cli_deploy",
    "cli_bulk",
    "cli_index",
    "deployed",
    "tuning",
    "cli_tune",
    "__main__",
)
HEAVY = {
    "torch", "transformers", "onnx", "onnxruntime", "openvino", "nncf", "tensorrt", "tensorrt_rtx", "tritonclient",
    "ray", "pyarrow", "faiss", "pandas",
}  # fmt: skip
# Modules that exist only to subclass torch's own classes; they are imported inside functions by their callers.
TORCH_MODULES = {
    path.relative_to(PACKAGE).as_posix()
    for path in (PACKAGE / "export").glob("*.py")
    if "(torch.nn.Module)" in path.read_text(encoding="utf-8")
}
SOURCES = sorted(PACKAGE.rglob("*.py"))


def imports(path: Path, *, top_only: bool) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    guarded = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    nodes = tree.body if top_only else list(ast.walk(tree))
    found: set[str] = set()
    for node in nodes:
        if id(node) in guarded:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_parts_meet_only_in_root_types(path: Path) -> None:
    place = path.relative_to(PACKAGE).parts
    found = {name.split(".")[1] for name in imports(path, top_only=False) if name.startswith("trimaran.")}
    if place[0] == "runtime":
        assert not found, "what travels with a model imports nothing of trimaran"
    elif place[0] in PARTS:
        assert not found & (set(PARTS) - {place[0]}), f"{place[0]} imports another part"
        assert not found & set(ABOVE_THE_PARTS), f"{place[0]} imports what stands above it"
    elif not {path.stem, place[0]} & set(ABOVE_THE_PARTS):
        assert not found & {*PARTS, *ABOVE_THE_PARTS}, "a root module imports a part"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_heavy_libraries_are_imported_inside_functions(path: Path) -> None:
    if path.relative_to(PACKAGE).as_posix() in TORCH_MODULES:
        return
    found = {name.split(".")[0] for name in imports(path, top_only=True)}
    assert not found & HEAVY


def test_help_loads_no_heavy_library() -> None:
    code = (
        "import sys; from trimaran.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        f"loaded = sorted(set(sys.modules) & {HEAVY!r})\n"
        "assert not loaded, loaded"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "deploy" in done.stdout
