"""The model that a student learns from: how it reads texts, what it answers, and how far a student is from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trimaran.core.artifact import Artifact
from trimaran.core.corpus import answer_context, encoder_of
from trimaran.core.progress import SilentProgress
from trimaran.core.spec import ModelRef, Range, ShapeProfile
from trimaran.core.store import Store
from trimaran.core.tasks import Task
from trimaran.core.tasks.task import first_text
from trimaran.export.reference import model_ref_of, reference
from trimaran.judging.labelled import DataScore, LabelledData
from trimaran.judging.proof import Proof
from trimaran.judging.quality_intervals import intervals
from trimaran.pipeline.lesson_texts import LessonText
from trimaran.runtime.text import Row, Text
from trimaran.shrink.teaching import Runner

# Tokens of a held-out text, at most, where the model does not say less.
_LONGEST = 512


@dataclass(frozen=True)
class Teacher:
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

    def distance_on(self, texts: Sequence[LessonText]) -> Callable[[Runner], float]:
        """How far a student is from the teacher on these texts, in the mean."""
        rows = self.tokenised([lesson.text for lesson in texts])
        wanted = {self.output: self.runner.answers(rows)}

        def distance(student: Runner) -> float:
            return float(self.row.loss.by_text(wanted, {self.output: student.answers(rows)}).mean())

        return distance

    def prove(self, student: Runner, lessons: Sequence[LessonText]) -> dict[str, Any]:
        """The student against the teacher's answers, by the gates of the level `distilled`: fields of the report."""
        kind_of = {first_text(lesson.text): lesson.kind for lesson in lessons}
        texts = self.row.judging([lesson.text for lesson in lessons])
        rows = self.tokenised(texts)
        wanted, answers = (self.answers(texts, side.answers(rows)) for side in (self.runner, student))
        kinds = [kind_of[first_text(text)] for text in texts]
        proof = Proof(self.row, self.row.distilled, wanted, answers, kinds=kinds)
        return {
            "metrics": self.row.fidelity(wanted, answers),
            "intervals": intervals(self.row, wanted, answers),
            "checks": proof.checks,
            "kinds": proof.kinds,
        }

    def score(self, student: Runner, data: LabelledData | None) -> DataScore | None:
        """Both on the user's labelled data."""
        if data is None:
            return None
        rows = self.runner.encoder.rows(data.texts)
        wanted, answers = ({self.output: side.answers(rows)} for side in (self.runner, student))
        return data.score(self.artifact, wanted, answers)


def load_teacher(ref: ModelRef, row: Task, folder: Path, *, seed: int) -> Teacher:
    """`folder` is that of the run: the teacher's tokenizer is kept there."""
    import torch

    # Weights that a checkpoint lacks and the task does not read are random numbers.
    torch.manual_seed(seed)
    longest = min(ref.default_sequence or _LONGEST, ref.positions, _LONGEST)
    profile = ShapeProfile(
        batch=Range(minimum=1, typical=1, maximum=1), sequence=Range(minimum=1, typical=1, maximum=longest)
    )
    artifact = reference(ref, profile, store=Store(folder / "reference"), progress=SilentProgress())
    return Teacher(ref, artifact, row, row.outputs(ref)[0].name, runner_of(model_ref_of(artifact), artifact))


def runner_of(ref: ModelRef, artifact: Artifact) -> Runner:
    from trimaran.export.wrappers import complete_module

    module = complete_module(ref, attention=str(artifact.engine_options["attention"]))
    return Runner(module, encoder_of(artifact))
