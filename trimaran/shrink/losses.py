"""How far a student's answers are from its teacher's, as torch differentiates it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import torch

    # (student's answers, teacher's answers, temperature) -> one number. The teacher's rows are those of the student.
    AnswerLoss: TypeAlias = Callable[[torch.Tensor, torch.Tensor, float], torch.Tensor]

_TINY = 1e-6
# Similarities move less than vectors do: with this weight both count about as much.
_SIMILARITY_WEIGHT = 4.0


def _vectors(student: torch.Tensor, teacher: torch.Tensor, temperature: float) -> torch.Tensor:
    """Squared error and cosine of each vector, and the similarities within the batch, which searches rest on."""
    from torch.nn.functional import cosine_similarity, normalize

    cosine = 1 - cosine_similarity(student, teacher, dim=-1).mean()
    similarities = [side @ side.T for side in (normalize(student, dim=-1), normalize(teacher, dim=-1))]
    moved = (similarities[0] - similarities[1]).square().mean()
    return relative_error(student, teacher) + cosine + _SIMILARITY_WEIGHT * moved


def _logits(student: torch.Tensor, teacher: torch.Tensor, temperature: float) -> torch.Tensor:
    """Soft targets: the divergence of both distributions, with logits divided by the temperature."""
    from torch.nn.functional import kl_div, log_softmax

    student_logs, teacher_logs = (log_softmax(side / temperature, dim=-1) for side in (student, teacher))
    return kl_div(student_logs, teacher_logs, reduction="batchmean", log_target=True) * temperature**2


def _probabilities(student: torch.Tensor, teacher: torch.Tensor, temperature: float) -> torch.Tensor:
    """Labels that are independent of one another."""
    from torch.nn.functional import binary_cross_entropy

    return binary_cross_entropy(student.clamp(_TINY, 1 - _TINY), teacher.clamp(0, 1))


def _numbers(student: torch.Tensor, teacher: torch.Tensor, temperature: float) -> torch.Tensor:
    return relative_error(student, teacher)


def relative_error(student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """The squared error, as a share of the teacher's squares."""
    return (student - teacher).square().mean() / teacher.square().mean().clamp(min=_TINY)


def layer_errors(student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """The relative errors of all layers, added; token vectors are `[tokens, layers, width]`."""
    import torch

    pairs = zip(student.unbind(1), teacher.unbind(1), strict=True)
    return torch.stack([relative_error(mine, wanted) for mine, wanted in pairs]).sum()


# By the name of the model's output.
LOSSES: Mapping[str, AnswerLoss] = {
    "embedding": _vectors,
    "logits": _logits,
    "label_probabilities": _probabilities,
    "values": _numbers,
    "score": _numbers,
}


def label_loss(student: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross entropy with the right labels, by number."""
    from torch.nn.functional import cross_entropy

    return cross_entropy(student, labels)
