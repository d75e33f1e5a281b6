"""A student's texts: read once each, in the form that its task reads, and held out in parts that share no text."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimaran.core.errors import UsageError
from trimaran.core.tasks import task
from trimaran.pipeline.lesson_texts import FEWEST_TEXTS, LessonText, read_lessons, split


def pairs_file(path: Path, count: int = FEWEST_TEXTS) -> Path:
    rows = ["question\tcontext\tlabel", *(f"question {index}\tcontext {index}\t{index % 2}" for index in range(count))]
    path.write_text("\n".join(rows), encoding="utf-8")
    return path


def lessons(count: int) -> list[LessonText]:
    return [LessonText(f"text {index}", "a") for index in range(count)]


def test_a_pair_is_two_texts_for_a_task_that_reads_single_texts(tmp_path: Path) -> None:
    read = read_lessons([pairs_file(tmp_path / "some.tsv")], task("embedding"), labelled=False)
    assert read[:2] == [LessonText("context 0", "some"), LessonText("question 0", "some")]
    assert len(read) == 2 * FEWEST_TEXTS


def test_a_pair_stays_a_pair_for_a_task_that_reads_pairs_and_the_question_comes_first(tmp_path: Path) -> None:
    read = read_lessons([pairs_file(tmp_path / "some.tsv")], task("question-answering"), labelled=True)
    assert read[0] == LessonText(("question 0", "context 0"), "some", "0")
    assert len(read) == FEWEST_TEXTS


def test_a_text_of_two_files_is_learnt_once_under_the_name_of_the_first(tmp_path: Path) -> None:
    paths = [tmp_path / "first.txt", tmp_path / "second.txt"]
    for path in paths:
        path.write_text("\n".join(lesson.text for lesson in lessons(FEWEST_TEXTS) if isinstance(lesson.text, str)))
    read = read_lessons(paths, task("embedding"), labelled=False)
    assert [lesson.kind for lesson in read] == ["first"] * FEWEST_TEXTS


def test_too_few_texts_are_refused_with_their_number(tmp_path: Path) -> None:
    path = tmp_path / "few.txt"
    path.write_text("one\ntwo\none\n", encoding="utf-8")
    with pytest.raises(UsageError, match=f"There are 2 different texts in .*few.txt; at least {FEWEST_TEXTS}"):
        read_lessons([path], task("embedding"), labelled=False)


@pytest.mark.parametrize(("count", "held_out"), [(FEWEST_TEXTS, 8), (1000, 50), (20_000, 500)])
def test_each_text_is_in_one_part_and_the_seed_decides_which(count: int, held_out: int) -> None:
    given = lessons(count)
    parts = split(given, seed=3)
    assert (len(parts.choosing), len(parts.judging)) == (held_out, held_out)
    assert sorted(lesson.text for part in parts for lesson in part) == sorted(lesson.text for lesson in given)
    assert split(given, seed=3) == parts
    assert split(given, seed=4) != parts
