"""Every task writes the answers that it gives when asked directly, typed in Parquet and as they are in JSON lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.bulk.worlds import run
from tests.export.exported import answering, exported_family
from trimaran.bulk.answer_types import answer_type
from trimaran.bulk.readers import InputColumns
from trimaran.bulk.worker import EncodeOptions
from trimaran.core.errors import UsageError
from trimaran.core.tasks import TASKS

pytestmark = pytest.mark.usefixtures("workers_here")
ROWS = [
    {"text": "the cat sat on the mat", "other": "the dog ran to the old house"},
    {"text": "who ran", "other": "the dog ran"},
    {"text": "a house", "other": "cat"},
]
CHOICES = [{**row, "other": f"{row['other']} ||| the bad fish"} for row in ROWS]
ASK: dict[str, dict[str, Any]] = {"zero-shot-classification": {"labels": ["animals", "houses"]}}
PAIRS = {name for name, row in TASKS.items() if row.texts == "pair"} - {"zero-shot-classification"}


def test_every_task_but_embedding_has_a_column_type() -> None:
    for name in set(TASKS) - {"embedding"}:
        assert answer_type(name) is not None
    with pytest.raises(UsageError, match="have no column type"):
        answer_type("embedding")


@pytest.mark.slow
@pytest.mark.parametrize("task", sorted(set(TASKS) - {"embedding", "hybrid-embedding", "text-classification"}))
def test_answers_are_those_of_the_task(task: str, tmp_path: Path) -> None:
    artifact = exported_family(tmp_path, "bert", task)
    source = tmp_path / "a.jsonl"
    rows = CHOICES if task == "multiple-choice" else ROWS
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    columns = InputColumns(pair="other" if task in PAIRS else None)
    how = EncodeOptions(rows="padded", ask=ASK.get(task, {}))
    run(artifact, [source], tmp_path / "table", columns=columns, how=how)
    run(artifact, [source], tmp_path / "lines", columns=columns, how=how, format_="jsonl")
    texts: list[Any] = [(row["text"], row["other"]) if task in PAIRS else row["text"] for row in rows]
    if task == "rerank":
        texts = [(first, [second]) for first, second in texts]
    if task == "multiple-choice":
        texts = [(first, second.split(" ||| ")) for first, second in texts]
    expected = [_plain(answer) for answer in TASKS[task].served.answer(answering(artifact), texts, **ASK.get(task, {}))]
    lines = (tmp_path / "lines" / "parts" / "part-00000.jsonl").read_text().splitlines()
    assert _close([json.loads(line)["answer"] for line in lines], expected)
    answers = pq.read_table(tmp_path / "table" / "parts").column("answer").to_pylist()
    assert _close([_without_none(answer) for answer in answers], expected)


@pytest.mark.slow
def test_a_row_that_the_task_refuses_is_rejected_alone(tmp_path: Path) -> None:
    artifact = exported_family(tmp_path, "bert", "multiple-choice")
    source = tmp_path / "a.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in [CHOICES[0], ROWS[1], CHOICES[2]]))
    manifest = run(artifact, [source], tmp_path / "out", columns=InputColumns(pair="other"))
    assert manifest.rows_written == 2
    ((reason, count),) = manifest.rejected.items()
    assert count == 1
    assert "at least two choices" in reason


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value, default=lambda item: item.tolist()))


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return [_without_none(item) for item in value] if isinstance(value, list) else value


def _close(answer: Any, expected: Any) -> bool:
    """Equal but for the last bits of numbers, which a batch of other texts may change."""
    if isinstance(expected, dict):
        return set(answer) == set(expected) and all(_close(answer[key], expected[key]) for key in expected)
    if isinstance(expected, list):
        return len(answer) == len(expected) and all(_close(*pair) for pair in zip(answer, expected, strict=True))
    if isinstance(expected, float):
        return bool(np.isclose(answer, expected, atol=1e-5))
    return bool(answer == expected)
