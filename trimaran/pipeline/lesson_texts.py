"""The texts that a student learns from, and those that are held out to choose and to judge."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from trimaran.core.errors import UsageError
from trimaran.core.tables import LABEL, SECOND, TEXT, Table, read_table
from trimaran.core.tasks import Task
from trimaran.runtime.text import Text

FEWEST_TEXTS = 64
# Each of both held-out parts has a twentieth of the texts, but not more than this.
_MOST_HELD_OUT = 500


class LessonText(NamedTuple):
    text: Text
    # The name of the file that it comes from: figures are given for each file.
    kind: str
    # The right label, where labels are used.
    label: str = ""


class SplitTexts(NamedTuple):
    learnt: tuple[LessonText, ...]
    # Decide which layers stay and when learning stops.
    choosing: tuple[LessonText, ...]
    # Judge the finished student, and decide nothing.
    judging: tuple[LessonText, ...]


def read_lessons(files: Sequence[Path], row: Task, *, labelled: bool) -> list[LessonText]:
    """Every text once. A pair is one text for a task that reads pairs, and two texts for all others."""
    lessons = [lesson for path in files for lesson in _of_file(path, row, labelled=labelled)]
    different = list({lesson.text: lesson for lesson in reversed(lessons)}.values())[::-1]
    if len(different) < FEWEST_TEXTS:
        raise UsageError(
            f"There are {len(different)} different texts in {', '.join(map(str, files)) or 'no file'}; at least "
            f"{FEWEST_TEXTS} are wanted.",
            hint="Some thousand texts like those that the model will see are best; they need no labels.",
        )
    return different


def split(lessons: Sequence[LessonText], seed: int) -> SplitTexts:
    size = min(_MOST_HELD_OUT, max(FEWEST_TEXTS // 8, len(lessons) // 20))
    order = np.random.default_rng(seed).permutation(len(lessons))
    parts = (order[2 * size :], order[:size], order[size : 2 * size])
    return SplitTexts(*(tuple(lessons[index] for index in sorted(part)) for part in parts))


def _of_file(path: Path, row: Task, *, labelled: bool) -> list[LessonText]:
    table = read_table(path)
    if not table.rows:
        return []
    labels = table.column(LABEL, what="labels", place=len(table.columns) - 1) if labelled else [""] * len(table.rows)
    return [
        LessonText(text, path.stem, label)
        for texts, label in zip(_texts(table, row), labels, strict=True)
        for text in texts
        if text and all(text)
    ]


def _texts(table: Table, row: Task) -> list[tuple[Text, ...]]:
    """What each row of the table gives."""
    firsts = table.column(TEXT, what="texts", place=0)
    has_second = any(name in table.columns for name in SECOND)
    if row.texts == "single" and has_second:
        return list(zip(firsts, table.column(SECOND, what="second texts"), strict=True))
    if row.texts == "pair" or has_second:
        seconds = table.column(SECOND, what="second texts", place=1)
        return [((b, a) if row.asks else (a, b),) for a, b in zip(firsts, seconds, strict=True)]
    return [(text,) for text in firsts]
