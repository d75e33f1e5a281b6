"""The two heads that bge-m3 and models trained like it keep beside the encoder, as FlagEmbedding saves them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trimaran.core.errors import IntegrityError, UsageError
from trimaran.core.spec import Pooling, PoolingMode
from trimaran.core.tasks.hybrid_embedding import COLBERT_FILE, HEAD_FILES, SPARSE_FILE, TASK
from trimaran.export.checkpoint import load_pickle

if TYPE_CHECKING:
    import torch

# FlagEmbedding pools by the first token and scales to unit length, whatever the folder says.
PLAIN: PoolingMode = "cls"


def with_hybrid(task_name: str, name: str, folder: Path, source: str) -> str:
    """The task: an embedding model with both heads gives all three outputs, unless another task is asked for."""
    missing = [file for file in HEAD_FILES if not (folder / file).is_file()]
    if name == TASK.name and missing:
        raise UsageError(
            f"{source} has no {missing[0]}, which {TASK.name} needs.",
            hint="Ask for --task embedding: one vector a text.",
        )
    return TASK.name if task_name == "auto" and name == "embedding" and not missing else name


def require_first_token(pooling: Pooling, source: str) -> None:
    if pooling.mode != PLAIN or pooling.layers != (-1,):
        raise UsageError(
            f"{source} gives {TASK.name}, whose vector is made of the first token of the last layer.",
            hint="Leave out --pooling and --layers, or ask for --task embedding.",
        )


def token_width(folder: Path, hidden: int) -> int:
    """The length of a token's vector. Raises IntegrityError if a head does not fit the encoder."""
    sparse, colbert = (load_head(folder / name, device="meta") for name in (SPARSE_FILE, COLBERT_FILE))
    for head, name in ((sparse, SPARSE_FILE), (colbert, COLBERT_FILE)):
        if head.in_features != hidden:
            raise IntegrityError(f"{folder / name} reads {head.in_features} numbers, the encoder gives {hidden}.")
    if sparse.out_features != 1:
        raise IntegrityError(f"{folder / SPARSE_FILE} gives {sparse.out_features} numbers a token, wanted 1.")
    return int(colbert.out_features)


def load_head(path: Path, *, device: str = "cpu") -> torch.nn.Linear:
    """A linear layer in fp32 from its pickled weights, read as data."""
    import torch

    state = load_pickle(path, device=device)
    weight = state.get("weight")
    if set(state) - {"weight", "bias"} or not isinstance(weight, torch.Tensor) or weight.ndim != 2:
        raise IntegrityError(f"{path} does not hold the weight and the bias of one linear layer.")
    head = torch.nn.Linear(weight.shape[1], weight.shape[0], bias="bias" in state, device=device)
    if device != "meta":
        head.load_state_dict({name: value.float() for name, value in state.items()})
    return head
