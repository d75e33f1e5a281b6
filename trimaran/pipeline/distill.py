"""Distillation from the texts to the proven folder: the same for every kind of student."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from trimaran.core.artifact import digest_of
from trimaran.core.errors import IntegrityError, UsageError
from trimaran.core.progress import Progress
from trimaran.core.spec import ModelRef
from trimaran.core.store import publish, temporary_sibling
from trimaran.core.tasks import task
from trimaran.judging.labelled import LabelledData, label_names, read_labelled
from trimaran.pipeline.distilled_report import DISTILLED_REPORT, DistilledReport, card
from trimaran.pipeline.lesson_texts import LessonText, SplitTexts, read_lessons, split
from trimaran.pipeline.shrinking_run import ShrinkingRun, opened_run
from trimaran.pipeline.student_folder import CARD, common_facts, free_folder
from trimaran.pipeline.teacher import Teacher, load_teacher
from trimaran.shrink.teaching import Runner, TeacherAnswers, layers_that_fit
from trimaran.shrink.training import Learned, LearningSettings, Lessons, Training, TrainingClock

BUDGET_S = 1200.0
# Texts on which the written student is compared with the one that learnt.
_COMPARED = 200
# Between the student in memory and the one read from its folder, as a share of the largest number.
_FLOAT_NOISE = 1e-4


class Lesson(NamedTuple):
    """What a student is to learn, as the user asked for it."""

    ref: ModelRef
    text_files: Sequence[Path]
    data: Path | None = None
    metric: str | None = None
    budget_s: float = BUDGET_S
    resume: bool = False


class Beginner(NamedTuple):
    """A student before it learns."""

    student: Runner
    # Fields of the report that are its own.
    facts: dict[str, Any]
    # For each of its layers, in order: the teacher's layer whose token vectors it learns.
    learns: tuple[int, ...] = ()


class StudentKind(Protocol):
    """What differs between kinds of students."""

    # What of the request decides the student, beside its teacher, texts and settings.
    facts: dict[str, Any]

    def begin(self, teacher: Teacher, texts: SplitTexts, run: ShrinkingRun, progress: Progress) -> Beginner: ...

    def write(self, teacher: Teacher, student: Runner, folder: Path) -> int:
        """Writes everything that the student's folder needs. Returns the bytes of its weights."""
        ...

    def read(self, teacher: Teacher, folder: Path) -> Runner:
        """The student as its folder has it."""
        ...


def distill(
    kind: StudentKind, course: Lesson, output: Path, *, settings: LearningSettings, progress: Progress
) -> DistilledReport:
    """Writes a student that has learnt its teacher's answers, as a folder that is written whole or not at all.

    A run that ends early leaves its state beside the output, and `resume` continues it. The report says whether the
    student keeps the gates of the level `distilled`; the folder is written in either case.
    """
    output, ref, row = free_folder(output), course.ref, task(course.ref.task)
    if settings.label_weight and row.outputs(ref)[0].name != "logits":
        raise UsageError(f"{ref.source} does not choose one label of several, so labels cannot be learnt.")
    lessons = read_lessons(course.text_files, row, labelled=settings.label_weight > 0)
    labelled = _labelled_data(course)
    key = digest_of(
        {
            "teacher": ref.digest,
            "texts": [[lesson.text, lesson.label] for lesson in lessons],
            **kind.facts,
            "settings": settings.model_dump(),
        }
    )
    with opened_run(output, key, resume=course.resume) as run:
        texts = split(lessons, settings.seed)
        teacher = load_teacher(ref, row, run.folder, seed=settings.seed)
        beginner = kind.begin(teacher, texts, run, progress)
        student = beginner.student
        clock = TrainingClock(run.spent_s, course.budget_s, run.save)
        learned = _learn(beginner, teacher, texts, settings, run.folder, clock, progress)
        with temporary_sibling(output) as folder:
            with progress.stage("write") as step:
                size = kind.write(teacher, student, folder)
                step.outcome(f"{size / 1e6:.1f} MB")
            with progress.stage("prove") as step:
                written = kind.read(teacher, folder)
                _require_same(teacher, student, written, texts.judging)
                proof, score = teacher.prove(written, texts.judging), teacher.score(written, labelled)
                report = DistilledReport(
                    **common_facts(ref, size),
                    task=ref.task,
                    **beginner.facts,
                    texts_learnt=len(texts.learnt),
                    texts_choosing=len(texts.choosing),
                    texts_judging=len(texts.judging),
                    steps=learned.steps,
                    epochs=learned.epochs,
                    seconds=run.spent_s(),
                    cpu_seconds=run.cpu_s(),
                    distance_before=learned.before,
                    distance_after=learned.after,
                    **proof,
                    data=score,
                )
                step.outcome("keeps the level distilled" if report.holds else "does not keep the level distilled")
            (folder / DISTILLED_REPORT).write_text(report.to_json(), encoding="utf-8")
            (folder / CARD).write_text(card(report), encoding="utf-8")
            publish(folder, output)
    return report


def _labelled_data(lesson: Lesson) -> LabelledData | None:
    if (lesson.data is None) != (lesson.metric is None):
        raise UsageError("--data and --metric belong together.", hint="Give both, or none of them.")
    if not (lesson.data and lesson.metric):
        return None
    return read_labelled(lesson.data, lesson.metric, task=lesson.ref.task, labels=lesson.ref.labels)


def _learn(
    beginner: Beginner,
    teacher: Teacher,
    texts: SplitTexts,
    settings: LearningSettings,
    folder: Path,
    clock: TrainingClock,
    progress: Progress,
) -> Learned:
    rows = teacher.tokenised([lesson.text for lesson in texts.learnt], longest=settings.sequence)
    [output] = teacher.row.outputs(teacher.ref)
    student, learns = beginner.student, beginner.learns
    kept = layers_that_fit(learns, rows, teacher.ref.hidden)
    student.note(range(len(learns) - len(kept), len(learns)))
    asked = Runner(teacher.runner.module, teacher.runner.encoder, noted=kept)
    answers = TeacherAnswers(
        folder, asked, rows, width=int(output.dims[-1]), layers=len(kept), hidden=teacher.ref.hidden
    )
    labels: list[int] = []
    if settings.label_weight:
        names = label_names("--texts", [lesson.label for lesson in texts.learnt], teacher.ref.labels)
        labels = [teacher.ref.labels.index(name) for name in names]
    distance = teacher.distance_on(texts.choosing)
    training = Training(
        student,
        Lessons(rows, answers, output.name, labels),
        settings,
        held_out=lambda: distance(student),
        checkpoint=folder / "checkpoint.pt",
        clock=clock,
    )
    with progress.stage("learn") as step:
        learned = training.run(step)
        step.outcome(
            f"{learned.steps:,} steps, {learned.epochs:.1f} epochs; {teacher.row.loss.title} on held-out texts "
            f"{learned.before:.4f} before, {learned.after:.4f} after"
        )
    return learned


def _require_same(teacher: Teacher, student: Runner, written: Runner, texts: Sequence[LessonText]) -> None:
    """Raises IntegrityError if the written student answers otherwise than the one that learnt."""
    rows = teacher.tokenised([lesson.text for lesson in texts[:_COMPARED]])
    wanted, answers = (side.answers(rows) for side in (student, written))
    difference = float(np.abs(wanted - answers).max())
    if not difference <= _FLOAT_NOISE * max(1.0, float(np.abs(wanted).max())):
        raise IntegrityError(
            f"The written student answers otherwise than the one that learnt: max |Δ| {difference:.1e}.",
            hint=f"Models of the family {teacher.ref.family} cannot be shrunk in this way; please report the model.",
        )
