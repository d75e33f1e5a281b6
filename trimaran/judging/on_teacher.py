"""A student's candidate against the student's teacher: the same texts, by the gates of the level `distilled`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from trimaran.core.distances import Answers, Outputs
from trimaran.core.tasks import Task
from trimaran.judging.gate_check import GateCheck
from trimaran.judging.proof import Proof

# Before the name of a metric that compares with the teacher, not with eager PyTorch.
TEACHER = "teacher_"


class OnTeacher(NamedTuple):
    # Digest of the teacher's reference.
    digest: str
    # What the teacher answers to the judging texts, in their order.
    outputs: Outputs


class TeacherProof(NamedTuple):
    metrics: Mapping[str, float]
    checks: tuple[GateCheck, ...]


def against_teacher(
    row: Task, teacher: Answers, candidate: Answers, *, kinds: Sequence[str] = (), judged: int = 1
) -> TeacherProof:
    """Metrics and checks, named with `teacher_` before the metric."""
    proof = Proof(row, row.distilled, teacher, candidate, kinds=kinds, judged=judged)
    values = row.fidelity(teacher, candidate)
    return TeacherProof(
        {f"{TEACHER}{name}": value for name, value in values.items()},
        tuple(check.model_copy(update={"name": f"{TEACHER}{check.name}"}) for check in proof.checks),
    )
