from __future__ import annotations

import itertools
import json
import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from trimaran.core.corpus import (
    OWN_KIND,
    Part,
    _shipped_rows,
    kinds_of,
    read_pairs,
    read_texts,
    readable_texts,
    require_useful,
    shipped_pairs,
    shipped_texts,
    spread,
)
from trimaran.core.errors import UsageError
from trimaran.pipeline.plan import texts_for

PARTS: tuple[Part, ...] = ("calibration", "judging", "names")
DAYS_AND_MONTHS = re.compile(r"\b([A-Z][a-z]+days?|January|March|April|May|Ju[nl][ey]|August|[A-Z][a-z]+ber)\b")
NAME_INSIDE = re.compile(r"(?<=[a-zà-ÿ,;] )[A-ZÀ-Þ][a-zà-ÿ]{2,}")


def test_no_text_is_both_calibrated_on_and_judged_on() -> None:
    calibration, judging = shipped_texts("calibration"), shipped_texts("judging")
    assert not set(calibration) & set(judging)
    assert min(len(calibration), len(judging)) >= 300
    assert min(len(shipped_pairs("calibration")), len(shipped_pairs("judging"))) >= 100


def test_at_least_twenty_kinds_judge_with_sixty_texts_each_and_several_are_absent_from_calibration() -> None:
    judging, calibration = (Counter(kinds_of(shipped_texts(part))) for part in ("judging", "calibration"))
    assert len(judging) >= 20 and min(judging.values()) >= 60
    assert set(calibration) < set(judging)
    assert set(judging) - set(calibration) == {"address", "fiction", "headline", "paraphrase", "product", "question"}
    assert sum(len(text.split()) > 400 for text in shipped_texts("judging")) >= 3


def test_pairs_are_many_and_of_several_kinds() -> None:
    kinds = Counter(kinds_of(shipped_pairs("judging")))
    assert kinds.total() >= 600
    assert sum(count >= 20 for count in kinds.values()) >= 10


def test_texts_that_are_not_shipped_are_of_the_users_own_kind() -> None:
    headline = next(row["text"] for row in _shipped_rows("judging") if row["kind"] == "headline")
    assert kinds_of([headline, "mine", ("mine", headline), ("mine", "too")]) == (
        "headline", OWN_KIND, "headline", OWN_KIND
    )  # fmt: skip


def test_paraphrases_form_groups_of_more_than_ten() -> None:
    partners: dict[str, set[str]] = defaultdict(set)
    for row in _shipped_rows("judging"):
        if row["kind"] == "paraphrase":
            partners[row["text"]].add(row["pair"])
            partners[row["pair"]].add(row["text"])
    groups = set()
    for text in partners:
        group, added = {text}, {text}
        while added:
            added = {other for member in added for other in partners[member]} - group
            group |= added
        groups.add(frozenset(group))
    assert len(groups) >= 5 and min(map(len, groups)) > 10


@pytest.mark.parametrize("part", PARTS)
def test_every_shipped_text_is_there_once(part: Part) -> None:
    assert max(Counter(tuple(text.lower().split()) for text in shipped_texts(part) if text.strip()).values()) == 1


def test_no_eight_words_in_a_row_are_in_two_parts() -> None:
    def runs(part: Part) -> set[tuple[str, ...]]:
        sides = [side for row in _shipped_rows(part) for side in (row["text"], row["pair"] or "")]
        words = [re.findall(r"\w+", side.lower()) for side in sides]
        return {tuple(text[begin : begin + 8]) for text in words for begin in range(len(text) - 7)}

    for one, other in itertools.combinations(PARTS, 2):
        assert not runs(one) & runs(other)


def test_more_than_300_texts_that_judge_entities_have_one() -> None:
    """A capital inside a sentence, days and months and German apart: a model finds more, such as at a beginning."""
    rows = [row for row in (*_shipped_rows("judging"), *_shipped_rows("names")) if row["language"] != "de"]
    named = [row for row in rows if NAME_INSIDE.search(DAYS_AND_MONTHS.sub("", row["text"]))]
    assert set(texts_for("token-classification", "judging", None)) >= {row["text"] for row in named}
    assert len(named) >= 360
    assert sum(kind == "people and places" for kind in kinds_of(shipped_texts("names"))) >= 120
    assert texts_for("embedding", "judging", None) == shipped_texts("judging")


def test_the_corpus_has_several_lengths_and_chinese() -> None:
    judging = shipped_texts("judging")
    words = sorted(len(text.split()) for text in judging)
    assert words[0] <= 3 and words[-1] >= 120
    assert sum(any("\u4e00" <= letter <= "\u9fff" for letter in text) for text in judging) >= 20


@pytest.mark.parametrize("part", ["calibration", "judging"])
def test_the_corpus_has_names_words_and_titles_without_a_sentence_around_them(part: Part) -> None:
    rows = [row for row in _shipped_rows(part) if row["kind"] == "name"]
    assert len(rows) >= 40
    assert max(len(row["text"].split()) for row in rows) <= 8
    assert sum(len(text.split()) <= 8 for text in shipped_texts(part)) >= 0.4 * len(shipped_texts(part))


def test_a_text_of_mostly_unknown_tokens_cannot_be_read(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1, "b": 2}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    path = tmp_path / "tokenizer.json"
    tokenizer.save(str(path))
    texts = ["a b", "a x", "x y a", "слово", " ", ("a b", "x"), ("a", "x y")]
    assert readable_texts(texts, path) == ("a b", "a x", " ", ("a b", "x"))


def test_texts_are_drawn_evenly_from_the_whole_file() -> None:
    texts = tuple(f"text {index}" for index in range(1000))
    drawn = spread(texts, 320)
    assert len(set(drawn)) == 320
    positions = [texts.index(text) for text in drawn]
    assert {after - before for before, after in itertools.pairwise(positions)} == {3, 4}
    assert (positions[0], positions[-1] >= 990) == (0, True)
    assert spread(texts[:7], 3) == ("text 0", "text 2", "text 4")
    assert spread(texts[:7], 9) == texts[:7]
    assert spread((), 9) == ()


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


TEXTS = [f"sentence number {index} says something else about topic {index * 7}" for index in range(20)]


def written(folder: Path, name: str) -> Path:
    """The twenty texts in the format that the name asks for."""
    path = folder / name
    if path.suffix == ".jsonl":
        path.write_text("\n".join(json.dumps({"id": 1, "text": text}) for text in TEXTS), encoding="utf-8")
    elif path.suffix == ".tsv":
        path.write_text("\n".join(["label\ttext", *(f"1\t{text}" for text in TEXTS)]), encoding="utf-8")
    elif path.suffix == ".parquet":
        arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(arrow.table({"text": TEXTS, "label": list(range(20))}), path)
    else:
        path.write_text("\n".join(TEXTS), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.tsv", "a.parquet"])
def test_every_format_gives_the_same_texts(tmp_path: Path, name: str) -> None:
    assert read_texts(written(tmp_path, name)) == tuple(TEXTS)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.tsv", "label\tsentence_id\n" + "1\t2\n" * 30, "no column with the texts: found label, sentence_id"),
        ("a.tsv", "text\tlabel\na\t1\nb\n", "row 2 has 1 columns, the first has 2"),
        ("a.jsonl", '{"text": "a"}\n{"text"', "line 2 is not JSON"),
        ("a.jsonl", "[1, 2]\n", "line 1 is list"),
        ("a.jsonl", '{"text": "a", "label": 1}\n{"label": 2}\n', "record 2 has no 'text'"),
        ("a.parquet", "no parquet at all", "is not a readable parquet file"),
    ],
)
def test_a_table_that_is_none_is_refused_in_words(tmp_path: Path, name: str, content: str, words: str) -> None:
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UsageError, match=re.escape(words)):
        read_texts(path)


def test_pairs_come_from_two_columns_or_from_parted_lines(tmp_path: Path) -> None:
    lines, table = tmp_path / "a.txt", tmp_path / "a.tsv"
    lines.write_text("\n".join(f"context {index} ||| question {index}" for index in range(16)), encoding="utf-8")
    rows = ["question\tcontext", *(f"question {index}\tcontext {index}" for index in range(16))]
    table.write_text("\n".join(rows), encoding="utf-8")
    assert read_pairs(lines) == read_pairs(table)
    lines.write_text("\n".join(TEXTS), encoding="utf-8")
    with pytest.raises(UsageError, match="without a second text"):
        read_pairs(lines)


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ([f"word{index}" for index in range(30)], "too short to calibrate on: 30 words in 30 texts; at least 100"),
        ([f"the same {index % 5} again and again" for index in range(200)], "too uniform to calibrate on: 9 different"),
    ],
)
def test_texts_that_teach_nothing_are_refused(texts: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        require_useful(texts, Path("a.txt"))
    require_useful(shipped_texts("calibration"), Path("a.txt"))
    require_useful(
        ["今年以来，国内物价总体保持温和上涨，但不同商品之间的差异十分明显。受天气和运输成本的影响" * 3], Path("a.txt")
    )
