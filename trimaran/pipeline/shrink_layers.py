"""`trimaran shrink --layers`: a student with fewer layers that has learnt its teacher's answers."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from trimaran.core.errors import UsageError
from trimaran.core.families import STATIC
from trimaran.core.progress import Progress
from trimaran.core.spec import ModelRef
from trimaran.core.tasks import TASKS, task
from trimaran.export.locate import locate
from trimaran.export.reference import model_ref_of
from trimaran.pipeline.distill import BUDGET_S, Beginner, Lesson, distill
from trimaran.pipeline.distilled_report import DistilledReport
from trimaran.pipeline.lesson_texts import LessonText, SplitTexts
from trimaran.pipeline.shrinking_run import ShrinkingRun
from trimaran.pipeline.student_folder import copy_rest, weight_bytes
from trimaran.pipeline.teacher import Teacher, runner_of
from trimaran.shrink.layers import choose_layers, fixed_layers, learnt_layers, trials_of, with_layers
from trimaran.shrink.teaching import Runner
from trimaran.shrink.training import LearningSettings

if TYPE_CHECKING:
    import torch

# Texts on which every choice of layers is tried.
_TRIAL_TEXTS = 200


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
) -> DistilledReport:
    """Writes a student with `layers` layers: see `distill`."""
    ref = locate(model, task_name=task_name)
    _require_shrinkable(ref, layers)
    lesson = Lesson(ref, text_files, data, metric, budget_s, resume)
    return distill(FewerLayers(layers), lesson, output, settings=settings or LearningSettings(), progress=progress)


class FewerLayers:
    """A student that begins as some of its teacher's layers."""

    def __init__(self, layers: int) -> None:
        self._layers = layers
        # The teacher's answers on disk have this form.
        self.facts: dict[str, Any] = {"layers": layers, "learns": "every layer"}

    def begin(self, teacher: Teacher, texts: SplitTexts, run: ShrinkingRun, progress: Progress) -> Beginner:
        kept = run.state.layers or _choose(teacher, self._layers, texts.choosing, run, progress)
        run.save(layers=kept)
        facts = {"student": "layers", "layers_before": teacher.ref.layers, "layers": kept}
        return Beginner(_student(teacher, kept), facts, learnt_layers(teacher.ref.layers, len(kept)))

    def write(self, teacher: Teacher, student: Runner, folder: Path) -> int:
        body = copy_rest(teacher.ref, folder)
        cast(Any, student.model).save_pretrained(body)
        return weight_bytes(body)

    def read(self, teacher: Teacher, folder: Path) -> Runner:
        ref = locate(str(folder), task_name=teacher.ref.task)
        fed = ref.model_copy(update={"inputs": model_ref_of(teacher.artifact).inputs})
        return runner_of(fed, teacher.artifact)


def _require_shrinkable(ref: ModelRef, layers: int) -> None:
    without_layers = ref.family == STATIC.name or ref.module is not None
    if not task(ref.task).distilled or ref.score_ids or without_layers:
        known = ", ".join(other.name for other in TASKS.values() if other.distilled)
        raise UsageError(
            f"{ref.source} cannot be made smaller by leaving out layers: it is "
            f"{'a model without layers' if without_layers else f'a model for {ref.task}'}.",
            hint=f"Known: {known}, with a head of its own.",
        )
    if not 1 <= layers < ref.layers:
        raise UsageError(
            f"{ref.source} has {ref.layers} layers, so {layers} cannot stay.",
            hint=f"Give --layers from 1 to {ref.layers - 1}.",
        )


def _choose(
    teacher: Teacher, wanted: int, texts: Sequence[LessonText], run: ShrinkingRun, progress: Progress
) -> tuple[int, ...]:
    """Tries on held-out texts which layers can go, by the task's own distance and before any learning.

    Every trial is kept: those of a deep model take minutes, and a resumed run does not repeat them.
    """
    model = cast("torch.nn.Module", teacher.runner.module.model)
    fixed, distance = fixed_layers(model), teacher.distance_on(texts[:_TRIAL_TEXTS])
    trials = trials_of(teacher.ref.layers, wanted, fixed)
    done = 0
    with progress.stage("layers") as step:

        def without(kept: tuple[int, ...]) -> float:
            nonlocal done
            done += 1
            step.advance(done, trials, f"layers {', '.join(str(layer + 1) for layer in kept)}")
            name = " ".join(map(str, kept))
            if name not in run.state.trials:
                found = distance(_student(teacher, kept, own_weights=False))
                run.save(trials={**run.state.trials, name: found})
            return run.state.trials[name]

        kept = choose_layers(teacher.ref.layers, wanted, without, fixed=fixed)
        step.outcome(f"{', '.join(str(layer + 1) for layer in kept)} of {teacher.ref.layers} stay, after {done} trials")
    return kept


def _student(teacher: Teacher, kept: Sequence[int], *, own_weights: bool = True) -> Runner:
    smaller = with_layers(teacher.runner.module, kept)
    return Runner(copy.deepcopy(smaller) if own_weights else smaller, teacher.runner.encoder)
