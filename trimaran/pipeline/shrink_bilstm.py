"""`trimaran shrink --to bilstm`: a small recurrent student of an embedder or a classifier."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from trimaran.core.artifact import Artifact
from trimaran.core.bilstm_config import WEIGHTS, BiLstmConfig
from trimaran.core.corpus import encoder_of
from trimaran.core.errors import UsageError
from trimaran.core.families import STATIC, family
from trimaran.core.progress import Progress
from trimaran.core.spec import ModelRef
from trimaran.export.locate import locate
from trimaran.pipeline.distill import BUDGET_S, Beginner, Lesson, distill
from trimaran.pipeline.distilled_report import DistilledReport
from trimaran.pipeline.lesson_texts import SplitTexts
from trimaran.pipeline.shrinking_run import ShrinkingRun
from trimaran.pipeline.teacher import Teacher
from trimaran.shrink.bilstm import untaught
from trimaran.shrink.teaching import Runner
from trimaran.shrink.training import LearningSettings

if TYPE_CHECKING:
    from trimaran.core.bilstm import BiLstm

# It begins with random weights, so it takes larger steps and more of them than a student made of trained layers.
SETTINGS = LearningSettings(epochs=30, learning_rate=2e-3)
_TASKS = ("embedding", "text-classification")
_INPUTS = ("input_ids", "attention_mask")


def shrink_to_bilstm(
    model: str,
    text_files: Sequence[Path],
    output: Path,
    *,
    task_name: str = "auto",
    data: Path | None = None,
    metric: str | None = None,
    budget_s: float = BUDGET_S,
    resume: bool = False,
    settings: LearningSettings = SETTINGS,
    progress: Progress,
) -> DistilledReport:
    """Writes a BiLSTM that has learnt the model's answers: see `distill`."""
    ref = locate(model, task_name=task_name)
    _require_teachable(ref)
    lesson = Lesson(ref, text_files, data, metric, budget_s, resume)
    return distill(BiLstmStudent(settings.seed), lesson, output, settings=settings, progress=progress)


class BiLstmStudent:
    """A BiLSTM with the teacher's tokens."""

    facts: dict[str, Any] = {"to": "bilstm"}

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def begin(self, teacher: Teacher, texts: SplitTexts, run: ShrinkingRun, progress: Progress) -> Beginner:
        student = untaught(_config(teacher), teacher.runner.model, seed=self._seed)
        return Beginner(_runner(student, teacher.artifact), {"student": "bilstm", "layers_before": teacher.ref.layers})

    def write(self, teacher: Teacher, student: Runner, folder: Path) -> int:
        from trimaran.core.bilstm import write_bilstm

        write_bilstm(cast("BiLstm", student.module), folder)
        tokenizer = teacher.artifact.directory / "tokenizer.json"
        (folder / tokenizer.name).write_bytes(tokenizer.read_bytes())
        return (folder / WEIGHTS).stat().st_size

    def read(self, teacher: Teacher, folder: Path) -> Runner:
        from trimaran.core.bilstm import read_bilstm

        return _runner(read_bilstm(folder), teacher.artifact)


def _require_teachable(ref: ModelRef) -> None:
    if ref.task not in _TASKS or family(ref.family).generator or ref.family == STATIC.name or ref.module:
        raise UsageError(
            f"{ref.source} cannot teach a BiLSTM: it is a {ref.family} for {ref.task}.",
            hint=f"Encoders for {' or '.join(_TASKS)} can.",
        )


def _config(teacher: Teacher) -> BiLstmConfig:
    ref, spec = teacher.ref, teacher.artifact.tokenizer
    [output] = teacher.row.outputs(ref)
    return BiLstmConfig(
        task=cast(Literal["embedding", "text-classification"], ref.task),
        vocabulary=ref.vocabulary,
        width=int(output.dims[-1]),
        unit_length=ref.pooling is not None and _unit_length(ref),
        labels=ref.labels,
        activation=ref.activation,
        default_sequence=ref.default_sequence,
        prompts=ref.prompts,
        default_prompt=ref.default_prompt,
        pad_id=spec.pad_id,
        cut_side=spec.cut_side,
    )


def _unit_length(ref: ModelRef) -> bool:
    """Whether the last thing that the model does is to scale its vectors to length 1."""
    pooling = ref.pooling
    assert pooling is not None
    return pooling.normalize or (pooling.modules[-1:] == ("normalize",) and pooling.dimensions is None)


def _runner(student: BiLstm, artifact: Artifact) -> Runner:
    """Reads texts as the teacher does, but feeds no segments and pads on the right."""
    spec = artifact.tokenizer.model_copy(update={"inputs": _INPUTS, "pad_side": "right"})
    return Runner(student, encoder_of(artifact.model_copy(update={"tokenizer": spec})), complete=False)
