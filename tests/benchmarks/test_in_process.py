"""The script that measures what `trimaran.load` adds to the code that the server runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.benchmarks.scripts import scripts_in
from tests.tiny import tiny_artifact
from trimaran.model_repository.layout import lay_out

FOLDER = Path(__file__).parents[2] / "benchmarks"


def test_both_paths_give_the_same_answers_and_every_round_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository, output = tmp_path / "repository", tmp_path / "result.json"
    lay_out(tiny_artifact(tmp_path / "store"), repository=repository, name="vectors", rows="alone", threads=1)
    monkeypatch.setattr(sys, "argv", ["in_process.py", str(repository), "vectors", "--rounds", "2", "-o", str(output)])
    with scripts_in(
        FOLDER, ("experiment", "in_process", "faults", "readme", "growth_results", "performance")
    ) as scripts:
        scripts.in_process.main()
        result = json.loads(output.read_text(encoding="utf-8"))
        for name, row in result["rows"].items():
            calls = [[scripts.in_process.CALLS[name]] * 2] * 2
            assert [[len(samples) for samples in row[path]] for path in ("bare_ns", "public_ns")] == calls
            assert result["claims"][f"{name} within 3 %"] == (row["public_over_bare"] <= 1.03)
        assert [wanted for *_, wanted in scripts.performance._in_process(result)] == ["≤ 1.03"] * 3
