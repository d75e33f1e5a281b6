"""`trimaran shrink --layers`: a student with fewer layers that has learnt its teacher's answers."""

from __future__ import annotations

import contextlib
import copy
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from trimaran.core.artifact import Artifact, digest_of
from trimaran.core.corpus import answer_context, encoder_of
from trimaran.core.errors import IntegrityError, UsageError
from trimaran.core.families import STATIC
from trimaran.core.persisted import Persisted
from trimaran.core.progress import Progress, SilentProgress
from trimaran.core.spec import ModelRef, Range, ShapeProfile
from trimaran.core.store import Store, locked, publish, temporary_sibling, write_atomically
from trimaran.core.tasks import TASKS, Task, task
from trimaran.core.tasks.task import first_text
from trimaran.export.locate import locate
from trimaran.export.reference import model_ref_of, reference
from trimaran.judging.labelled import DataScore, LabelledData, label_names, read_labelled
from trimaran.judging.proof import Proof
from trimaran.judging.quality_intervals import intervals
from trimaran.pipeline.layers_report import LAYERS_REPORT, LayersReport, card
from trimaran.pipeline.lesson_texts import LessonText, SplitTexts, read_lessons, split
from trimaran.pipeline.student_folder import CARD, common_facts, copy_rest, free_folder, weight_bytes
from trimaran.runtime.text import Row, Text
from trimaran.shrink.layers import choose_layers, fixed_layers, trials_of, with_layers
from trimaran.shrink.teaching import Runner, TeacherAnswers
from trimaran.shrink.training import Clock, LearningSettings, Lessons, Training

if TYPE_CHECKING:
    import torch

BUDGET_S = 1200.0
# Tokens of a held-out text, at most, where the model does not say less.
_LONGEST = 512
# Texts on which every choice of layers is tried.
_TRIAL_TEXTS = 200
# Between the student in memory and the one read from its folder, as a share of the largest number.
_FLOAT_NOISE = 1e-4


class RunState(Persisted):
    """`run.json` in the folder of an unfinished run."""

    what: ClassVar[str] = "state of an unfinished run"
    remedy: ClassVar[str] = "Remove its folder and begin again."

    # Digest of the teacher, the texts and the settings.
    key: str
    # The layers that stay, once they are chosen.
    layers: tuple[int, ...] = ()
    # Of all sessions so far: by the clock, and of the CPU.
    spent_s: float = 0.0
    cpu_s: float = 0.0


class _Run:
    """The folder of an unfinished run, `.NAME.shrinking` beside the output: it survives a kill."""

    def __init__(self, folder: Path, key: str) -> None:
        self.folder, self._path = folder, folder / "run.json"
        self.state = RunState.read(self._path) if self._path.is_file() else RunState(key=key)
        self._begun_s = time.monotonic() - self.state.spent_s
        self._begun_cpu_s = time.process_time() - self.state.cpu_s

    def spent_s(self) -> float:
        return time.monotonic() - self._begun_s

    def cpu_s(self) -> float:
        """Of all threads of the process."""
        return time.process_time() - self._begun_cpu_s

    def save(self, **changes: Any) -> None:
        self.state = self.state.model_copy(update={**changes, "spent_s": self.spent_s(), "cpu_s": self.cpu_s()})
        write_atomically(self._path, self.state.to_json())


@contextlib.contextmanager
def _opened_run(output: Path, key: str, *, resume: bool) -> Iterator[_Run]:
    folder = output.with_name(f".{output.name}.shrinking")
    try:
        with locked(folder, wait=False):
            if (folder / "run.json").is_file() and not resume:
                raise UsageError(
                    f"{folder} holds a run that did not finish.",
                    hint="Add --resume to continue it, or remove that folder to begin again.",
                )
            run = _Run(folder, key)
            if run.state.key != key:
                raise UsageError(
                    f"{folder} holds a run of another model, of other texts or with other settings.",
                    hint="Give what the first command had, or remove that folder to begin again.",
                )
            run.save()
            yield run
            shutil.rmtree(folder, ignore_errors=True)
    except BlockingIOError:
        raise UsageError(f"Another process shrinks into {output} right now.") from None


@dataclass(frozen=True)
class _Teacher:
    """The model that is shrunk, and how it reads texts and answers."""

    ref: ModelRef
    # Eager PyTorch, with the longest sequence that held-out texts have.
    artifact: Artifact
    row: Task
    output: str
    runner: Runner

    def tokenised(self, texts: Sequence[Text], *, longest: int | None = None) -> list[Row]:
        """Texts take turns with the model's prompts, and with none, as callers will ask."""
        profile = self.artifact.profile
        if longest is not None:
            sequence = Range(minimum=1, typical=1, maximum=min(longest, profile.sequence.maximum))
            profile = ShapeProfile(batch=profile.batch, sequence=sequence)
        encoder = encoder_of(self.artifact.model_copy(update={"profile": profile}))
        prompts = (None, *self.ref.prompts)
        rows = [encoder.rows(texts[turn :: len(prompts)], prompt=name) for turn, name in enumerate(prompts)]
        return [rows[index % len(prompts)][index // len(prompts)] for index in range(len(texts))]

    def answers(self, texts: Sequence[Text], outputs: np.ndarray[Any, Any]) -> Mapping[str, Any]:
        """What the metrics of the task compare."""
        return self.row.judged(answer_context(self.artifact), texts, {self.output: outputs})


def shrink_layers(
    model: str,
    text_files: Sequence[Path],
    output: Path,
    *,
    layers: int,
    task_name: str = "auto",
    data: Path | None = None,
    metric: str | None = None,
    budget_s: float = BUDGET_S,
    resume: bool = False,
    settings: LearningSettings | None = None,
    progress: Progress,
) -> LayersReport:
    """Writes a student with `layers` layers, as a folder that is written whole or not at all.

    A run that ends early leaves its state beside the output, and `resume` continues it. The report says whether the
    student keeps the gates of the level `distilled`; the folder is written in either case.
    """
    output, settings = free_folder(output), settings or LearningSettings()
    ref = locate(model, task_name=task_name)
    row = _shrinkable(ref, layers, settings)
    lessons = read_lessons(text_files, row, labelled=settings.label_weight > 0)
    labelled = _labelled_data(data, metric, ref)
    key = digest_of(
        {
            "teacher": ref.digest,
            "texts": [[lesson.text, lesson.label] for lesson in lessons],
            "layers": layers,
            "settings": settings.model_dump(),
        }
    )
    with _opened_run(output, key, resume=resume) as run:
        texts = split(lessons, settings.seed)
        teacher = _teacher(ref, row, run, settings)
        kept = run.state.layers or _choose(teacher, layers, texts.choosing, progress)
        run.save(layers=kept)
        clock = Clock(run.spent_s, budget_s, run.save)
        student, learned = _learn(teacher, kept, texts, settings, run.folder, clock, progress)
        with temporary_sibling(output) as folder:
            with progress.stage("write") as step:
                body = copy_rest(ref, folder)
                cast(Any, student.module.model).save_pretrained(body)
                size = weight_bytes(body)
                step.outcome(f"{size / 1e6:.1f} MB")
            with progress.stage("prove") as step:
                written = _read_back(teacher, folder, student, texts.judging)
                proof = _prove(teacher, written, texts.judging)
                score = _on_data(teacher, written, labelled)
                report = LayersReport(
                    **common_facts(ref, size),
                    task=ref.task,
                    layers_before=ref.layers,
                    layers=kept,
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
            (folder / LAYERS_REPORT).write_text(report.to_json(), encoding="utf-8")
            (folder / CARD).write_text(card(report), encoding="utf-8")
            publish(folder, output)
    return report


def _shrinkable(ref: ModelRef, layers: int, settings: LearningSettings) -> Task:
    row = task(ref.task)
    if not row.distilled or ref.score_ids or ref.family == STATIC.name:
        known = ", ".join(other.name for other in TASKS.values() if other.distilled)
        raise UsageError(
            f"{ref.source} cannot be made smaller by leaving out layers: it is "
            f"{'a table without layers' if ref.family == STATIC.name else f'a model for {ref.task}'}.",
            hint=f"Known: {known}, with a head of its own.",
        )
    if not 1 <= layers < ref.layers:
        raise UsageError(
            f"{ref.source} has {ref.layers} layers, so {layers} cannot stay.",
            hint=f"Give --layers from 1 to {ref.layers - 1}.",
        )
    [output] = row.outputs(ref)
    if settings.label_weight and output.name != "logits":
        raise UsageError(f"{ref.source} does not choose one label of several, so labels cannot be learnt.")
    return row


def _labelled_data(data: Path | None, metric: str | None, ref: ModelRef) -> LabelledData | None:
    if (data is None) != (metric is None):
        raise UsageError("--data and --metric belong together.", hint="Give both, or none of them.")
    return read_labelled(data, metric, task=ref.task, labels=ref.labels) if data and metric else None


def _teacher(ref: ModelRef, row: Task, run: _Run, settings: LearningSettings) -> _Teacher:
    import torch

    # Weights that a checkpoint lacks and the task does not read are random numbers.
    torch.manual_seed(settings.seed)
    longest = min(ref.default_sequence or _LONGEST, ref.positions, _LONGEST)
    profile = ShapeProfile(
        batch=Range(minimum=1, typical=1, maximum=1), sequence=Range(minimum=1, typical=1, maximum=longest)
    )
    artifact = reference(ref, profile, store=Store(run.folder / "reference"), progress=SilentProgress())
    return _Teacher(ref, artifact, row, row.outputs(ref)[0].name, _runner(model_ref_of(artifact), artifact))


def _runner(ref: ModelRef, artifact: Artifact) -> Runner:
    from trimaran.export.wrappers import complete_module

    module = complete_module(ref, attention=str(artifact.engine_options["attention"]))
    return Runner(module, encoder_of(artifact))


def _choose(teacher: _Teacher, wanted: int, texts: Sequence[LessonText], progress: Progress) -> tuple[int, ...]:
    """Tries on held-out texts which layers can go, by the task's own distance and before any learning."""
    model = cast("torch.nn.Module", teacher.runner.module.model)
    fixed, distance = fixed_layers(model), _distance_to(teacher, texts[:_TRIAL_TEXTS])
    trials = trials_of(teacher.ref.layers, wanted, fixed)
    done = 0
    with progress.stage("layers") as step:

        def without(kept: tuple[int, ...]) -> float:
            nonlocal done
            done += 1
            step.advance(done, trials, f"layers {', '.join(str(layer + 1) for layer in kept)}")
            return distance(_student(teacher, kept, own_weights=False))

        kept = choose_layers(teacher.ref.layers, wanted, without, fixed=fixed)
        step.outcome(f"{', '.join(str(layer + 1) for layer in kept)} of {teacher.ref.layers} stay, after {done} trials")
    return kept


def _student(teacher: _Teacher, kept: Sequence[int], *, own_weights: bool = True) -> Runner:
    smaller = with_layers(teacher.runner.module, kept)
    return Runner(copy.deepcopy(smaller) if own_weights else smaller, teacher.runner.encoder)


def _distance_to(teacher: _Teacher, texts: Sequence[LessonText]) -> Callable[[Runner], float]:
    """How far a student is from the teacher on these texts, in the mean."""
    rows = teacher.tokenised([lesson.text for lesson in texts])
    wanted = {teacher.output: teacher.runner.answers(rows)}

    def distance(student: Runner) -> float:
        return float(teacher.row.loss.by_text(wanted, {teacher.output: student.answers(rows)}).mean())

    return distance


def _learn(
    teacher: _Teacher,
    kept: Sequence[int],
    texts: SplitTexts,
    settings: LearningSettings,
    folder: Path,
    clock: Clock,
    progress: Progress,
) -> tuple[Runner, Any]:
    rows = teacher.tokenised([lesson.text for lesson in texts.learnt], longest=settings.sequence)
    [output] = teacher.row.outputs(teacher.ref)
    answers = TeacherAnswers(folder, teacher.runner, rows, width=int(output.dims[-1]), hidden=teacher.ref.hidden)
    labels: list[int] = []
    if settings.label_weight:
        names = label_names("--texts", [lesson.label for lesson in texts.learnt], teacher.ref.labels)
        labels = [teacher.ref.labels.index(name) for name in names]
    student, distance = _student(teacher, kept), _distance_to(teacher, texts.choosing)
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
    return student, learned


def _read_back(teacher: _Teacher, folder: Path, student: Runner, texts: Sequence[LessonText]) -> Runner:
    """The student as its folder has it. Raises IntegrityError if it answers otherwise than the one that learnt."""
    ref = locate(str(folder), task_name=teacher.ref.task)
    fed = ref.model_copy(update={"inputs": model_ref_of(teacher.artifact).inputs})
    written = _runner(fed, teacher.artifact)
    rows = teacher.tokenised([lesson.text for lesson in texts[:_TRIAL_TEXTS]])
    wanted, found = (side.answers(rows) for side in (student, written))
    difference = float(np.abs(wanted - found).max())
    if not difference <= _FLOAT_NOISE * max(1.0, float(np.abs(wanted).max())):
        raise IntegrityError(
            f"The written student answers otherwise than the one that learnt: max |Δ| {difference:.1e}.",
            hint=f"Layers of the family {ref.family} cannot be left out; please report the model.",
        )
    return written


def _prove(teacher: _Teacher, student: Runner, lessons: Sequence[LessonText]) -> dict[str, Any]:
    """The student against the teacher's answers, by the gates of the level `distilled`."""
    kind_of = {first_text(lesson.text): lesson.kind for lesson in lessons}
    texts = teacher.row.judging([lesson.text for lesson in lessons])
    rows = teacher.tokenised(texts)
    wanted, found = (teacher.answers(texts, side.answers(rows)) for side in (teacher.runner, student))
    kinds = [kind_of[first_text(text)] for text in texts]
    proof = Proof(teacher.row, teacher.row.distilled, wanted, found, kinds=kinds)
    return {
        "metrics": teacher.row.fidelity(wanted, found),
        "intervals": intervals(teacher.row, wanted, found),
        "checks": proof.checks,
        "kinds": proof.kinds,
    }


def _on_data(teacher: _Teacher, student: Runner, data: LabelledData | None) -> DataScore | None:
    if data is None:
        return None
    rows = teacher.runner.encoder.rows(data.texts)
    wanted, found = ({teacher.output: side.answers(rows)} for side in (teacher.runner, student))
    return data.score(teacher.artifact, wanted, found)
