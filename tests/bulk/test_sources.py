from __future__ import annotations

from pathlib import Path

import pytest

from tests.bulk.worlds import written
from trimaran.bulk.sources import sources_from
from trimaran.core.errors import UsageError


def test_folders_globs_and_files_are_expanded_in_order_and_once(tmp_path: Path) -> None:
    for name in ("b.txt", "a.csv", "deep/c.jsonl", ".hidden.txt", "notes.md"):
        written(tmp_path / name, ["x"])
    names = [Path(source.path).name for source in sources_from([str(tmp_path)])]
    assert names == ["a.csv", "b.txt", "c.jsonl"]
    again = sources_from([f"{tmp_path}/*.txt", str(tmp_path / "b.txt")])
    assert [source.kind for source in again] == ["txt"]
    assert not [s for s in sources_from([str(tmp_path)], outside=tmp_path / "deep") if "deep" in s.path]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["missing.txt"], "does not exist"),
        (["*.nothing"], "names no file"),
        (["notes.md"], "is of no known kind"),
    ],
)
def test_inputs_that_are_none_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "notes.md", ["x"])
    with pytest.raises(UsageError, match=words):
        sources_from(given)


def test_parquet_cannot_come_from_stdin() -> None:
    with pytest.raises(UsageError, match="cannot be read from stdin"):
        sources_from(["-"], kind="parquet")
