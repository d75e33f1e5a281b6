"""The first weights of a BiLSTM student: its token table comes from the teacher, all else from the seed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trimaran.core.bilstm_config import BiLstmConfig

if TYPE_CHECKING:
    import torch

    from trimaran.core.bilstm import BiLstm

_TINY = 1e-6


def untaught(config: BiLstmConfig, teacher: torch.nn.Module, *, seed: int) -> BiLstm:
    """A student that has learnt nothing yet. `teacher` is transformers' model."""
    import torch

    from trimaran.core.bilstm import BiLstm

    torch.manual_seed(seed)
    student = BiLstm(config)
    whole: Any = teacher
    student.table.weight.data.copy_(principal_parts(whole.get_input_embeddings().weight, config.table))
    student.eval()
    return student


def principal_parts(table: torch.Tensor, width: int) -> torch.Tensor:
    """The rows of a table by their `width` principal components, with variance 1 in the mean.

    A narrower table is filled up with zeros.
    """
    import torch

    rows = table.detach().double()
    rows = rows - rows.mean(dim=0)
    # Ascending by variance.
    directions = torch.linalg.eigh(rows.T @ rows)[1].flip(1)[:, :width]
    # The sign of a direction is arbitrary: the largest number of each becomes positive.
    largest = directions.gather(0, directions.abs().argmax(0, keepdim=True))
    parts = rows @ (directions * largest.sign())
    parts = parts / parts.square().mean().sqrt().clamp(min=_TINY)
    missing = width - parts.shape[1]
    return torch.nn.functional.pad(parts, (0, missing)).float()
