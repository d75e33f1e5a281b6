"""Final answers of an artifact in a process of its own, by the very code that a server runs."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trimaran.core.artifact import Artifact, load_artifact
from trimaran.core.backends import open_session
from trimaran.core.choices import Rows
from trimaran.core.corpus import answering_of
from trimaran.core.isolation import Worker
from trimaran.core.scratch import ScratchFolder
from trimaran.core.tasks import task
from trimaran.core.tasks.task import RequestRow, WireTensors
from trimaran.judging.golden import tensors_from_json, tensors_to_json
from trimaran.runtime.answers import Answering
from trimaran.runtime.wire import ServedTask

_DEADLINE_S = 600.0


def final_answers(
    artifact: Artifact,
    rows: Sequence[RequestRow],
    *,
    threads: int,
    policy: Rows = "alone",
    worker: Worker | None = None,
) -> WireTensors:
    """Each row answered alone, padded as a rows policy says. Raises the child's error, or ChildError when it died.

    `worker` is a child that others use as well; without one, a child is started for these rows.
    """
    with ScratchFolder("answers") as folder:
        rows_file, answers_file = Path(folder) / "rows.json", Path(folder) / "answers.json"
        rows_file.write_text(json.dumps([dict(row) for row in rows]), encoding="utf-8")
        environment = {**artifact.execution_environment, "OMP_NUM_THREADS": str(threads)}
        with contextlib.nullcontext(worker) if worker else Worker(environment=environment) as child:
            child.call(
                answer_rows,
                _DEADLINE_S,
                directory=str(artifact.directory.absolute()),
                rows_path=str(rows_file),
                result_path=str(answers_file),
                threads=threads,
                policy=policy,
            )
        return tensors_from_json(answers_file.read_text(encoding="utf-8"))


def answer_rows(directory: str, rows_path: str, result_path: str, threads: int, policy: str) -> int:
    """In the child: writes the tensors of all rows, returns how many rows there were."""
    artifact = load_artifact(Path(directory))
    rows = json.loads(Path(rows_path).read_text(encoding="utf-8"))
    served_task = task(artifact.task).served
    with open_session(artifact, threads=threads) as session:
        served = answering_of(artifact, session.infer, policy=policy)
        answers = [answer_row(served_task, served, row) for row in rows]
    for answer in answers:
        # What a caller asks for only now and then, and too large to travel.
        for extra in ("hidden_states", "attentions"):
            if isinstance(answer, dict):
                answer.pop(extra, None)
    Path(result_path).write_text(tensors_to_json(served_task.tensors(answers)), encoding="utf-8")
    return len(rows)


def answer_row(served_task: ServedTask, served: Answering, row: RequestRow) -> Any:
    """The final answer to one request."""
    item, keywords = served_task.question(row)
    return served_task.answer(served, [item], **keywords)[0]
