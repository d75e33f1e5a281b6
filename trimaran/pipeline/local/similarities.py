"""The similarities of sentence-transformers, on arrays or tensors; results are torch tensors, as there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, cast

from trimaran.core.errors import UsageError

Similarity = Literal["cosine", "dot", "euclidean", "manhattan"]


def named(name: str) -> Similarity:
    if name not in ALL_PAIRS:
        raise UsageError(f"Unknown similarity {name!r}.", hint=f"Known: {', '.join(ALL_PAIRS)}.")
    return cast(Similarity, name)


def _tensors(first: Any, second: Any) -> tuple[Any, Any]:
    return _tensor(first), _tensor(second)


def _tensor(vectors: Any) -> Any:
    import numpy as np
    import torch

    if not isinstance(vectors, torch.Tensor):
        rows = [row.numpy() if isinstance(row, torch.Tensor) else row for row in vectors]
        vectors = torch.from_numpy(np.asarray(rows, np.float32))
    return vectors.float() if vectors.ndim > 1 else vectors.float()[None]


def _cosine(first: Any, second: Any) -> Any:
    import torch

    left, right = (torch.nn.functional.normalize(part, dim=-1) for part in _tensors(first, second))
    return left @ right.T


def _dot(first: Any, second: Any) -> Any:
    left, right = _tensors(first, second)
    return left @ right.T


def _distance(power: float) -> Callable[[Any, Any], Any]:
    def similarity(first: Any, second: Any) -> Any:
        import torch

        return -torch.cdist(*_tensors(first, second), p=power)

    return similarity


def _cosine_pairwise(first: Any, second: Any) -> Any:
    import torch

    return torch.nn.functional.cosine_similarity(*_tensors(first, second), dim=-1)


def _dot_pairwise(first: Any, second: Any) -> Any:
    left, right = _tensors(first, second)
    return (left * right).sum(dim=-1)


def _distance_pairwise(power: float) -> Callable[[Any, Any], Any]:
    def similarity(first: Any, second: Any) -> Any:
        left, right = _tensors(first, second)
        return -(left - right).norm(p=power, dim=-1)

    return similarity


ALL_PAIRS: dict[str, Callable[[Any, Any], Any]] = {
    "cosine": _cosine,
    "dot": _dot,
    "euclidean": _distance(2.0),
    "manhattan": _distance(1.0),
}
PAIRWISE: dict[str, Callable[[Any, Any], Any]] = {
    "cosine": _cosine_pairwise,
    "dot": _dot_pairwise,
    "euclidean": _distance_pairwise(2.0),
    "manhattan": _distance_pairwise(1.0),
}
