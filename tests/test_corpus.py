from __future__ import annotations

from pathlib import Path

import pytest

from trimaran.corpus import read_texts, shipped_pairs, shipped_texts
from trimaran.errors import UsageError


def test_no_text_is_both_calibrated_on_and_judged_on() -> None:
    calibration, judging = shipped_texts("calibration"), shipped_texts("judging")
    assert not set(calibration) & set(judging)
    assert min(len(calibration), len(judging)) >= 300
    assert min(len(shipped_pairs("calibration")), len(shipped_pairs("judging"))) >= 100


def test_the_corpus_has_several_lengths_and_chinese() -> None:
    judging = shipped_texts("judging")
    words = sorted(len(text.split()) for text in judging)
    assert words[0] <= 3 and words[-1] >= 120
    assert sum(any("\u4e00" <= letter <= "\u9fff" for letter in text) for text in judging) >= 20


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "has 0 different texts"),
        (b"\n\n \n", "has 0 different texts"),
        (b"same\n" * 100, "has 1 different texts"),
        (b"\x89PNG\r\n\x1a\n\x00\xff\xfe", "is not UTF-8"),
        (b"text\x00binary\n" * 40, "is a binary file"),
    ],
)
def test_a_useless_calibration_file_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "texts.txt"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=words):
        read_texts(path)


def test_texts_are_read_once_each_in_order(tmp_path: Path) -> None:
    path = tmp_path / "texts.txt"
    path.write_text("\n".join([f"text {index}" for index in range(20)] * 2), encoding="utf-8")
    assert read_texts(path)[:2] == ("text 0", "text 1")
    assert len(read_texts(path)) == 20
