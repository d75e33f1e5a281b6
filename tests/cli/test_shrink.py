"""`trimaran shrink` refuses options that it would ignore, and says what is missing, before it reads anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import trimaran_here


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("", "Choose one way"),
        ("--layers 3 --vocabulary texts.txt", "Choose one way"),
        ("--layers 3 --to bilstm --texts texts.txt", "Choose one way"),
        ("--layers 3", "--layers needs texts to learn from"),
        ("--to bilstm", "--to needs texts to learn from"),
        ("--vocabulary texts.txt --budget 3m --resume", "it cannot use --budget, --resume"),
        ("--vocabulary texts.txt --texts texts.txt", "it cannot use --texts"),
        ("--layers 3 --texts texts.txt --learning-rate 0", "--learning-rate 0.0 teaches nothing"),
        ("--layers 3 --texts texts.txt --learning-rate nan", "--learning-rate nan teaches nothing"),
        ("--layers 3 --texts texts.txt --budget 5x", "--budget '5x' is no time"),
    ],
)
def test_shrink_says_what_it_wants(tmp_path: Path, options: str, words: str) -> None:
    ended = trimaran_here("shrink", "no-model", "-o", "smaller", *options.split(), home=tmp_path / "home")
    assert ended.returncode == 2
    assert words in ended.stderr
    assert not (tmp_path / "smaller").exists()
