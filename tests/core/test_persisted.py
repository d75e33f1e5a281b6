"""Facts in files: written once, read once, and refused with a reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar

import pytest

from trimaran.core.errors import IntegrityError
from trimaran.core.persisted import Persisted


class Note(Persisted):
    what: ClassVar[str] = "note"
    remedy: ClassVar[str] = "Write it again."

    text: str


def test_reading_what_was_written_gives_the_same_fact(tmp_path: Path) -> None:
    path = tmp_path / "note.json"
    path.write_text(Note(text="a").to_json())
    assert json.loads(path.read_text()) == {"schema": 1, "text": "a"}
    assert Note.read(path) == Note(text="a")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not a readable note.*Write it again"),
        ("[]", "not a readable note"),
        ('{"schema": 1}', "not a readable note"),
        ('{"schema": 1, "text": "a", "more": 1}', "not a readable note"),
        ('{"schema": 2, "texts": []}', "has schema 2; this version of trimaran reads schema 1"),
    ],
)
def test_a_damaged_file_and_one_of_a_later_schema_are_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "note.json"
    path.write_text(text)
    with pytest.raises(IntegrityError, match=words) as caught:
        Note.read(path)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_refused_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match=r"note\.json is not a readable note: No such file") as caught:
        Note.read(tmp_path / "note.json")
    assert caught.value.path == str(tmp_path / "note.json")
