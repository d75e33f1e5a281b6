"""What runs a model that is already made needs neither torch nor transformers; what reads a trained one says so."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.tiny import tiny_artifact
from trimaran.model_repository.layout import lay_out

ROOT = Path(__file__).parent.parent
# As on a machine where the extra `export` was never installed: these names cannot be found.
_WITHOUT = """
import sys
from importlib.machinery import PathFinder
absent = {"torch", "transformers", "optimum", "sentence_transformers", "safetensors", "sentencepiece", "onnxscript"}
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return None if name.partition(".")[0] in absent else PathFinder.find_spec(name, path, target)
sys.meta_path[:] = [Finder if finder is PathFinder else finder for finder in sys.meta_path]
def command(*arguments):
    from trimaran.cli import main
    try:
        main(list(arguments))
    except SystemExit as ended:
        return ended.code or 0
    return 0
"""
_RUNS = """
import trimaran
model = trimaran.load("tiny", repository="repository")
assert model.encode(["the cat", "a dog"]).shape == (2, 8)
assert command("repository", "check", "repository") == 0
for name in ("finish", "serve", "query", "verify", "gateway", "up", "doctor"):
    assert command(name, "--help") == 0, name
import trimaran.pipeline.finish, trimaran.serving.gateway.server, trimaran.serving.client
import trimaran.serving.triton.server, trimaran.serving.triton.golden_check
assert not absent & set(sys.modules)
"""


def _run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{_WITHOUT}\n{code}"],
        cwd=folder,
        env={**os.environ, "TRIMARAN_HOME": str(folder / "home")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_made_model_is_loaded_checked_and_served_without_the_export_libraries(tmp_path: Path) -> None:
    artifact = tiny_artifact(tmp_path / "store")
    lay_out(artifact, repository=tmp_path / "repository", name="tiny", rows="padded", threads=1)
    done = _run(_RUNS, tmp_path)
    assert done.returncode == 0, done.stderr


def test_what_reads_a_trained_model_names_the_extra_to_install(tmp_path: Path) -> None:
    code = "sys.exit(max(command('deploy', '-m', '.'), command('export', '-m', '.')))"
    done = _run(code, tmp_path)
    assert done.returncode == 3, done.stderr
    assert done.stderr.count("Reading a trained model needs torch, transformers") == 2, done.stderr
    assert done.stderr.count("trimaran[export]") == 2


def test_the_export_libraries_are_an_extra_that_cpu_brings_along() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    names = {line.partition(">=")[0] for line in extras["export"]}
    assert {"torch", "transformers", "optimum", "sentence-transformers"} <= names
    base = {line.partition(">=")[0] for line in project["dependencies"]}
    assert not names & base
    assert "trimaran[engines,export]" in extras["cpu"]
    assert not any("export" in line or line.partition(">=")[0] in names for line in extras["gpu"] + extras["serve"])
