"""The modules that complete an encoder: ids in, final numbers out, so that the graph needs no code around it."""

from __future__ import annotations

import torch

from trimaran.export.load import load_model
from trimaran.families import family
from trimaran.spec import ModelRef, Pooling


class Embedding(torch.nn.Module):
    def __init__(self, encoder: torch.nn.Module, inputs: tuple[str, ...], pooling: Pooling) -> None:
        super().__init__()
        self.encoder = encoder
        self._inputs = inputs
        self._pooling = pooling

    def forward(self, *arrays: torch.Tensor) -> torch.Tensor:
        named = dict(zip(self._inputs, arrays, strict=True))
        states = self.encoder(**named).last_hidden_state
        pooled = pool(states, named["attention_mask"], self._pooling.mode)
        if self._pooling.normalize:
            pooled = torch.nn.functional.normalize(pooled, p=2.0, dim=-1)
        return pooled


class Logits(torch.nn.Module):
    def __init__(self, classifier: torch.nn.Module, inputs: tuple[str, ...]) -> None:
        super().__init__()
        self.classifier = classifier
        self._inputs = inputs

    def forward(self, *arrays: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.classifier(**dict(zip(self._inputs, arrays, strict=True))).logits
        return logits


def pool(states: torch.Tensor, mask: torch.Tensor, mode: str) -> torch.Tensor:
    """One vector a row from its unmasked token vectors."""
    if mode == "cls":
        return states[:, 0]
    weights = mask.unsqueeze(-1).to(states.dtype)
    if mode == "max":
        return torch.where(weights > 0, states, torch.full_like(states, -1e9)).amax(dim=1)
    return (states * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1e-9)


def complete_module(ref: ModelRef, *, attention: str) -> torch.nn.Module:
    """The whole computation of the model's task as one module with the family's inputs, positionally."""
    model = load_model(ref, attention=attention)
    inputs = family(ref.family).inputs
    if ref.task == "embedding":
        return Embedding(model, inputs, ref.pooling or Pooling()).eval()
    return Logits(model, inputs).eval()
