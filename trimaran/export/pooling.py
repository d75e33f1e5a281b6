"""Turns token vectors into one vector for each text: pooling, Dense layers, whitening, cut, unit length."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from trimaran.core.errors import IntegrityError, UsageError
from trimaran.core.spec import ModelRef, Pooling
from trimaran.export.checkpoint import load_pickle
from trimaran.export.sentence import dense_config

_ACTIVATIONS = {
    "Identity": torch.nn.Identity,
    "Tanh": torch.nn.Tanh,
    "ReLU": torch.nn.ReLU,
    "GELU": torch.nn.GELU,
    "Sigmoid": torch.nn.Sigmoid,
    "SiLU": torch.nn.SiLU,
}


class Dense(torch.nn.Module):
    """A Dense module of a sentence-transformers folder, its weights read as data."""

    def __init__(self, folder: Path, *, over: str = "sentence_embedding") -> None:
        super().__init__()
        config = dense_config(folder, over=over)
        name = str(config.get("activation_function", "torch.nn.modules.activation.Tanh")).rsplit(".", 1)[-1]
        if name not in _ACTIVATIONS:
            raise UsageError(f"{folder} activates by {name}; known: {', '.join(_ACTIVATIONS)}.")
        state = _read_state(folder)
        size = (int(config["in_features"]), int(config["out_features"]))
        self.linear = torch.nn.Linear(*size, bias=bool(config.get("bias", True)))
        self.residual = torch.nn.Linear(*size, bias=False) if "residual.weight" in state else None
        self._skip = bool(config.get("use_residual", False))
        self.activation = _ACTIVATIONS[name]()
        try:
            self.load_state_dict(state)
        except RuntimeError as error:
            raise IntegrityError(f"The Dense weights in {folder} do not fit their config: {error}") from error

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.activation(self.linear(vectors))
        if self._skip:
            out = out + (vectors if self.residual is None else self.residual(vectors))
        return out


class Whitening(torch.nn.Module):
    """(vector − mean) · kernel, as one linear layer."""

    def __init__(self, path: str, dimensions: int | None) -> None:
        super().__init__()
        from safetensors.torch import load_file

        tensors = load_file(path)
        kernel = tensors["kernel"][:, :dimensions]
        self.linear = torch.nn.Linear(*kernel.shape)
        self.linear.weight.data = kernel.T.contiguous()
        self.linear.bias.data = -(tensors["mean"].double() @ kernel.double()).float()

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.linear(vectors)
        return out


class Pooled(torch.nn.Module):
    """From the token vectors and the mask to the finished embedding."""

    def __init__(self, ref: ModelRef) -> None:
        super().__init__()
        pooling = ref.pooling or Pooling()
        self._pooling = pooling
        self.mode = "last-token" if pooling.mode == "cls" and ref.family == "xlnet" else pooling.mode
        root = Path(ref.root)
        stages: list[torch.nn.Module] = [
            UnitLength() if stage == "normalize" else Dense(root / stage) for stage in pooling.modules
        ]
        if pooling.whitening:
            stages.append(Whitening(pooling.whitening, pooling.dimensions))
        self.stages = torch.nn.Sequential(*stages)

    def forward(self, states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        vectors: torch.Tensor = self.stages(pool(states, mask, self.mode))
        if self._pooling.dimensions is not None:
            vectors = vectors[:, : self._pooling.dimensions]
        return torch.nn.functional.normalize(vectors, p=2.0, dim=-1) if self._pooling.normalize else vectors


class TokenStages(torch.nn.Sequential):
    """What follows the encoder of a late-interaction model, for each token vector by itself."""

    def __init__(self, root: Path, stages: Sequence[str]) -> None:
        super().__init__(
            *(
                UnitLength() if stage == "normalize" else Dense(root / stage, over="token_embeddings")
                for stage in stages
            )
        )


class UnitLength(torch.nn.Module):
    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.normalize(vectors, p=2.0, dim=-1)


def pool(states: torch.Tensor, mask: torch.Tensor, mode: str) -> torch.Tensor:
    """One vector for each row, from its token vectors without padding."""
    if mode == "cls":
        return states[:, 0]
    weights = mask.unsqueeze(-1).to(states.dtype)
    if mode == "max":
        return torch.where(weights > 0, states, torch.full_like(states, -1e9)).amax(dim=1)
    if mode in ("weighted-mean", "last-token"):
        positions = mask.cumsum(dim=1).to(states.dtype).unsqueeze(-1) * weights
        if mode == "last-token":
            weights = (positions == positions.amax(dim=1, keepdim=True)).to(states.dtype) * weights
            return (states * weights).sum(dim=1)
        weights = positions
    count = weights.sum(dim=1).clamp(min=1e-9)
    return (states * weights).sum(dim=1) / (count.sqrt() if mode == "mean-sqrt-length" else count)


def _read_state(folder: Path) -> dict[str, Any]:
    if (folder / "model.safetensors").is_file():
        from safetensors.torch import load_file

        return dict(load_file(folder / "model.safetensors"))
    path = folder / "pytorch_model.bin"
    if not path.is_file():
        raise UsageError(f"{folder} has no weights for its Dense layer.", hint="Copy the whole model folder.")
    return load_pickle(path)
