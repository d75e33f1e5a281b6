"""Final answers of an artifact in a process of its own, by the very code that a server runs."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trimaran.core.artifact import Artifact, load_artifact
from trimaran.core.backends import open_session
from trimaran.core.corpus import encoder_of
from trimaran.core.isolation import Worker
from trimaran.core.spec import Rows
from trimaran.judging.golden import Row, tensors_from_json, tensors_to_json
from trimaran.judging.wire_fidelity import Tensors
from trimaran.runtime.answers import ANSWERS, Answering, Reader
from trimaran.runtime.wire import OPTIONS, WIRES, parsed_options

_DEADLINE_S = 600.0


def final_answers(artifact: Artifact, rows: Sequence[Row], *, threads: int, policy: Rows = "alone") -> Tensors:
    """Each row answered alone, padded as a rows policy says. Raises the child's error, or ChildError when it died."""
    with tempfile.TemporaryDirectory(prefix="trimaran-answers-") as folder:
        asked, told = Path(folder) / "rows.json", Path(folder) / "answers.json"
        asked.write_text(json.dumps([dict(row) for row in rows]), encoding="utf-8")
        environment = {**artifact.execution_environment, "OMP_NUM_THREADS": str(threads)}
        with Worker(environment=environment) as worker:
            worker.call(
                answer_rows,
                _DEADLINE_S,
                directory=str(artifact.directory.absolute()),
                rows_path=str(asked),
                result_path=str(told),
                threads=threads,
                policy=policy,
            )
        return tensors_from_json(told.read_text(encoding="utf-8"))


def answer_rows(directory: str, rows_path: str, result_path: str, threads: int, policy: str) -> int:
    """In the child: writes the tensors of all rows, returns how many rows there were."""
    artifact = load_artifact(Path(directory))
    rows = json.loads(Path(rows_path).read_text(encoding="utf-8"))
    wire = WIRES[artifact.task]
    with open_session(artifact, threads=threads) as session:
        served = Answering(
            infer=session.infer,
            encoder=encoder_of(artifact),
            reader=Reader(str(artifact.directory / "tokenizer.json")),
            labels=artifact.labels,
            facts=artifact.details.get("answers", {}),
            policy=policy,
        )
        answers = [_answer(artifact.task, served, row) for row in rows]
    for answer in answers:
        # What a caller asks for only now and then, and too large to travel.
        for extra in ("hidden_states", "attentions"):
            if isinstance(answer, dict):
                answer.pop(extra, None)
    Path(result_path).write_text(tensors_to_json(wire.tensors(answers)), encoding="utf-8")
    return len(rows)


def _answer(task: str, served: Answering, row: Row) -> Any:
    wire = WIRES[task]
    keywords = parsed_options(task, str(row.get(OPTIONS, "")))
    keywords |= {keyword: row[name] for name, keyword in wire.keywords.items()}
    return ANSWERS[task](served, [wire.item(row)], **keywords)[0]
