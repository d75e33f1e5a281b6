"""Lets a student learn its teacher's answers: within a budget, seeded, and resumable after a kill."""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from trimaran.core.errors import QualityError
from trimaran.core.progress import Step, about
from trimaran.core.spec import Frozen
from trimaran.runtime.text import Row
from trimaran.shrink.batches import shuffled
from trimaran.shrink.losses import LOSSES, label_loss, layer_errors
from trimaran.shrink.teaching import Runner, TeacherAnswers

if TYPE_CHECKING:
    import torch

# A killed run loses at most what it learnt since.
SAVED_EVERY_S = 30.0
_WARM_UP_STEPS = 50
_WEIGHT_DECAY, _MOST_GRADIENT = 0.01, 1.0
# Steps after which the pace is known.
_TIMED_STEPS = 10
# Of the budget: to write and to prove the student.
_SHARE_FOR_THE_END = 0.08
_EVALUATIONS_AN_EPOCH = 4


class LearningSettings(Frozen):
    """What a run of distillation may differ in."""

    # Passes over all texts, at most.
    epochs: int = 8
    learning_rate: float = 3e-4
    # Logits are divided by it before they become soft targets.
    temperature: float = 2.0
    # What the right labels count beside the teacher's answers; 0 uses no labels.
    label_weight: float = 0.0
    # Tokens at which texts are cut for learning.
    sequence: int = 128
    seed: int = 0
    # Evaluations without progress after which learning stops: those of three epochs. While the learning rate is high,
    # one epoch or two may bring none, and the best weights come when it falls.
    patience: int = 12


class Lessons(NamedTuple):
    """What is learnt."""

    rows: Sequence[Row]
    teacher: TeacherAnswers
    # The name of the model's output, which decides the loss.
    output: str
    # The number of the right label of each text; none where labels are not used.
    labels: Sequence[int] = ()


class TrainingClock(NamedTuple):
    """The time of a run, over all its sessions."""

    spent_s: Callable[[], float]
    budget_s: float
    # Called with every checkpoint, so that a resumed run knows what it has spent.
    saved: Callable[[], None]

    @property
    def left_s(self) -> float:
        return self.budget_s - self.spent_s()


class Learned(NamedTuple):
    steps: int
    epochs: float
    # Mean distance to the teacher on held-out texts before learning, and of the student that is kept.
    before: float
    after: float


class Training:
    """One run. `held_out` says how far the student is from its teacher on texts that it does not learn."""

    def __init__(
        self,
        student: Runner,
        lessons: Lessons,
        settings: LearningSettings,
        *,
        held_out: Callable[[], float],
        checkpoint: Path,
        clock: TrainingClock,
    ) -> None:
        import torch

        self._student, self._lessons, self._settings = student, lessons, settings
        self._held_out, self._checkpoint, self._clock = held_out, checkpoint, clock
        self._weights = learning_weights(student)
        self._optimizer = torch.optim.AdamW(
            self._weights.values(), lr=settings.learning_rate, weight_decay=_WEIGHT_DECAY
        )
        an_epoch = len(shuffled(lessons.teacher.lengths, (settings.seed, 0)))
        self._an_epoch, self._every = an_epoch, max(1, an_epoch // _EVALUATIONS_AN_EPOCH)
        # How many steps fit into the budget is corrected while they run.
        self._steps = self._most_steps = settings.epochs * an_epoch
        self._step = self._epoch = self._position = self._without_progress = 0
        self._before = self._best_loss = math.inf
        self._best: dict[str, torch.Tensor] = {}

    def run(self, step: Step) -> Learned:
        """Learns to the end and leaves the best weights in the student. Continues from the checkpoint, if any."""
        if self._checkpoint.is_file():
            self._load()
        else:
            self._evaluate()
            self._before = self._best_loss
        saved_s = time.monotonic()
        # The moments of the latest steps: the first epoch is slower, because the teacher answers as well.
        moments = deque([saved_s], maxlen=self._every + 1)
        while not self._ended():
            batches = shuffled(self._lessons.teacher.lengths, (self._settings.seed, self._epoch))
            while self._position < len(batches) and not self._ended():
                loss = self._learn(batches[self._position])
                self._step, self._position = self._step + 1, self._position + 1
                moments.append(time.monotonic())
                pace_s = (moments[-1] - moments[0]) / (len(moments) - 1)
                if len(moments) > _TIMED_STEPS:
                    self._fit_into_budget(pace_s)
                if self._step % self._every == 0:
                    self._evaluate()
                if time.monotonic() - saved_s > SAVED_EVERY_S:
                    self._save()
                    saved_s = time.monotonic()
                left_s = min(self._clock.left_s, pace_s * (self._steps - self._step))
                words = f"loss {loss:.4f}, held out {self._best_loss:.4f}, {about(left_s)} left"
                step.advance(self._step, self._steps, words)
            if self._position >= len(batches):
                self._epoch, self._position = self._epoch + 1, 0
        if self._step % self._every:
            self._evaluate()
        # A kill while the student is written or proven costs no learning.
        self._save()
        self._restore(self._best)
        epochs = self._epoch + self._position / self._an_epoch
        return Learned(self._step, epochs, self._before, self._best_loss)

    def _ended(self) -> bool:
        return (
            self._epoch >= self._settings.epochs
            or self._step >= self._steps
            or self._without_progress >= self._settings.patience
            or self._clock.left_s <= 0
        )

    def _learn(self, batch: Sequence[int]) -> float:
        import torch

        teacher = self._lessons.teacher.of(batch)
        student = self._student([self._lessons.rows[index] for index in batch])
        loss = LOSSES[self._lessons.output](student.answers, teacher.answers, self._settings.temperature)
        if teacher.states is not None and student.states is not None:
            loss = loss + layer_errors(student.states, teacher.states)
        if self._lessons.labels:
            labels = torch.tensor([self._lessons.labels[index] for index in batch])
            weight = self._settings.label_weight
            loss = (1 - weight) * loss + weight * label_loss(student.answers, labels)
        if not bool(torch.isfinite(loss)):
            raise QualityError(
                f"The student's loss is not a number at step {self._step}.", hint="Give a smaller --learning-rate."
            )
        for group in self._optimizer.param_groups:
            group["lr"] = self._settings.learning_rate * self._schedule()
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._weights.values(), _MOST_GRADIENT)
        self._optimizer.step()
        return float(loss.detach())

    def _schedule(self) -> float:
        """Rises over the first steps, then falls to zero as a cosine does."""
        warm_up = min(_WARM_UP_STEPS, max(1, self._steps // 10))
        return min(1.0, (self._step + 1) / warm_up) * (1 + math.cos(math.pi * self._step / self._steps)) / 2

    def _fit_into_budget(self, pace_s: float) -> None:
        reserve_s = _SHARE_FOR_THE_END * self._clock.budget_s
        affordable = int(max(0.0, self._clock.left_s - reserve_s) / pace_s)
        self._steps = max(self._step, min(self._most_steps, self._step + affordable))

    def _evaluate(self) -> None:
        loss = self._held_out()
        self._without_progress += 1
        if loss < self._best_loss:
            self._best_loss, self._without_progress = loss, 0
            self._best = {name: weight.detach().clone() for name, weight in self._weights.items()}

    def _restore(self, weights: dict[str, torch.Tensor]) -> None:
        for name, weight in weights.items():
            self._weights[name].data.copy_(weight)

    def _save(self) -> None:
        import torch

        temporary = self._checkpoint.with_suffix(".new")
        with temporary.open("wb") as stream:
            torch.save(
                {
                    "weights": {name: weight.detach() for name, weight in self._weights.items()},
                    "best": self._best,
                    "optimizer": self._optimizer.state_dict(),
                    "numbers": {name: getattr(self, name) for name in _NUMBERS},
                },
                stream,
            )
            stream.flush()
            os.fsync(stream.fileno())
        self._lessons.teacher.save()
        temporary.replace(self._checkpoint)
        self._clock.saved()

    def _load(self) -> None:
        import torch

        state = torch.load(self._checkpoint, weights_only=True)
        self._restore(state["weights"])
        self._optimizer.load_state_dict(state["optimizer"])
        self._best = state["best"]
        for name, value in state["numbers"].items():
            setattr(self, name, value)


_NUMBERS = ("_steps", "_step", "_epoch", "_position", "_without_progress", "_before", "_best_loss")


def learning_weights(student: Runner) -> dict[str, torch.nn.Parameter]:
    """The weights that learn, by name; all others are frozen.

    Tables of embeddings stay as the teacher has them: tokens that the texts lack would fall behind the others. What
    follows the model itself, such as Dense layers, stays in files of its own and does not change.
    """
    import torch

    tables = {
        id(weight)
        for part in student.model.modules()
        if isinstance(part, torch.nn.Embedding)
        for weight in part.parameters()
    }
    learning = {name: weight for name, weight in student.model.named_parameters() if id(weight) not in tables}
    chosen = {id(weight) for weight in learning.values()}
    for weight in student.module.parameters():
        weight.requires_grad_(id(weight) in chosen)
    return learning
