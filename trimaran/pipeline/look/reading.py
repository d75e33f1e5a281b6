"""What eager PyTorch makes of a text, token by token: attention, token vectors, and what its answer rests on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from trimaran.core.corpus import encoder_of
from trimaran.core.errors import UsageError
from trimaran.core.tasks import task
from trimaran.core.tasks.task import Task
from trimaran.pipeline.look.subject import Subject
from trimaran.runtime.text import Array, Row, Text
from trimaran.shrink.teaching import Runner

if TYPE_CHECKING:
    import torch

_BATCH = 16


@dataclass(frozen=True)
class Reading:
    """One text, or one pair, as the model reads it. Arrays have no padding."""

    text: Text
    tokens: tuple[str, ...]
    # Texts beyond the longest sequence are cut.
    cut: bool
    inputs: Mapping[str, Array]
    # [layers, heads, tokens, tokens]; None where the model's library gives none of this shape.
    attention: Array | None
    # [layers + 1, tokens, hidden]: the embeddings, and what each layer gives.
    states: Array
    # The model's outputs, by name.
    outputs: Mapping[str, Array]
    # The part of the pooled vector that comes from each token; together 1. None where nothing is pooled.
    shares: Array | None
    # How far the answer moves, by the task's own distance, if the model cannot see the token; None for answers that are
    # themselves by token.
    moved: Array | None


class TextReader:
    """Reads texts with eager PyTorch."""

    def __init__(self, subject: Subject) -> None:
        from trimaran.export.wrappers import Complete, complete_module

        module = complete_module(subject.ref, attention="eager")
        assert isinstance(module, Complete)
        self.module: Complete = module
        self.task: Task = task(subject.ref.task)
        self._ref, self.encoder = subject.ref, encoder_of(subject.eager)
        self._specs = self.task.outputs(subject.ref)

    def read(self, texts: Sequence[str], *, prompt: str | None = None) -> list[Reading]:
        """One reading for each text, or one for both where the task reads pairs.

        Raises UsageError for one text where two are wanted, and for a prompt that the model does not have.
        """
        items: list[Text] = list(texts)
        if self.task.texts == "pair":
            if len(texts) != 2:
                raise UsageError(
                    f"A model for {self.task.name} reads two texts together, found {len(texts)}.",
                    hint='trimaran look MODEL "first text" "second text"',
                )
            items = [(texts[0], texts[1])]
        try:
            with self.encoder.noting_truncated() as truncated:
                encodings = self.encoder.encodings(items, prompt=prompt)
        except ValueError as error:
            raise UsageError(str(error)) from error
        return [
            self._reading(text, encoding, cut) for text, encoding, cut in zip(items, encodings, truncated, strict=True)
        ]

    def vectors(self, texts: Sequence[str]) -> Array:
        """The embeddings of texts, in their order."""
        return Runner(self.module, self.encoder).answers(self.encoder.rows(texts))

    def _reading(self, text: Text, encoding: Any, cut: bool) -> Reading:
        import torch

        inputs = self.encoder.batch([Row(encoding.ids, encoding.type_ids)])
        size = len(encoding.ids)
        tensors = {name: torch.from_numpy(array) for name, array in inputs.items()}
        prepared = self.task.head.prepare(dict(tensors)) if self.task.head else tensors
        with torch.inference_mode():
            raw = self.module.outputs(prepared, output_attentions=True, output_hidden_states=True)
        states = _by_layer(raw, "hidden_states")
        if not states or any(tuple(state.shape) != (1, size, states[0].shape[-1]) for state in states):
            raise UsageError(
                f"{self._ref.source} gives no vector for each token and layer, so there is nothing to show."
            )
        attention = _by_layer(raw, "attentions")
        square = bool(attention) and all(tuple(each.shape[2:]) == (size, size) for each in attention)
        outputs = self._outputs(inputs)
        return Reading(
            text=text,
            tokens=tuple(encoding.tokens),
            cut=cut,
            inputs=inputs,
            attention=torch.cat(attention).float().numpy() if square else None,
            states=torch.cat(states).float().numpy(),
            outputs=outputs,
            shares=self._shares(states, tensors.get("attention_mask")),
            moved=self._moved(inputs, outputs),
        )

    def _outputs(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        import torch

        with torch.inference_mode():
            output = self.module(*(torch.from_numpy(array) for array in inputs.values()))
        values = (output,) if isinstance(output, torch.Tensor) else output
        return dict(zip((spec.name for spec in self._specs), (value.numpy() for value in values), strict=True))

    def _shares(self, states: Sequence[torch.Tensor], mask: torch.Tensor | None) -> Array | None:
        """With linear pooling, the part of each token's summand along the pooled vector; with `max`, its numbers."""
        import torch

        from trimaran.export.pooling import pool
        from trimaran.export.wrappers import PooledVectors

        if not isinstance(self.module, PooledVectors) or mask is None:
            return None
        vectors = torch.stack([states[layer] for layer in self.module.layers]).mean(dim=0).double()
        if self.module.pooled.mode == "max":
            largest = vectors[0].masked_fill(mask[0].unsqueeze(-1) == 0, -torch.inf).argmax(dim=0)
            return np.asarray(torch.bincount(largest, minlength=vectors.shape[1]).numpy() / vectors.shape[2])
        # Pooling is a weighted sum: the weights are what it makes of unit vectors.
        weights = pool(torch.eye(vectors.shape[1], dtype=torch.float64).unsqueeze(0), mask, self.module.pooled.mode)[0]
        pooled = weights @ vectors[0]
        return np.asarray((weights * (vectors[0] @ pooled) / (pooled @ pooled).clamp(min=1e-12)).numpy())

    def _moved(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> Array | None:
        by_token = any("sequence" in spec.dims for spec in self._specs)
        if by_token or "attention_mask" not in inputs:
            return None
        size = inputs["attention_mask"].shape[1]
        moved = []
        for begin in range(0, size, _BATCH):
            hidden = range(begin, min(size, begin + _BATCH))
            batch = {name: np.repeat(array, len(hidden), axis=0) for name, array in inputs.items()}
            batch["attention_mask"][np.arange(len(hidden)), list(hidden)] = 0
            wanted = {name: np.repeat(array, len(hidden), axis=0) for name, array in outputs.items()}
            moved.append(self.task.loss.by_text(wanted, self._outputs(batch)))
        return np.concatenate(moved)


def _by_layer(raw: Any, name: str) -> list[torch.Tensor]:
    """Models of several stacks name those of the encoder."""
    tensors = getattr(raw, name, None) or getattr(raw, f"encoder_{name}", None) or ()
    return [tensor for tensor in tensors if tensor is not None]
