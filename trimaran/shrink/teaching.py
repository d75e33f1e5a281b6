"""What the teacher answers to every text: computed once and kept on disk, so that a resumed run has it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from trimaran.runtime.text import Row, TextEncoder, mask_of
from trimaran.shrink.batches import by_length
from trimaran.shrink.layers import layer_list

if TYPE_CHECKING:
    import torch

# Beyond this, the vectors of all tokens are not kept, and the student learns from the answers alone.
_MOST_STATE_BYTES = 2 << 30
_LARGEST_HALF = 6e4


class Forward(NamedTuple):
    """What a model made of some texts."""

    # One row for each text.
    answers: torch.Tensor
    # What the last layer gave for each token, texts one after the other; None if it gave something else.
    states: torch.Tensor | None


class Runner:
    """Runs a module on tokenised texts, with or without gradients.

    `layered`: it is a complete module whose `model` is one of transformers, and what its last layer gives is noted.
    """

    def __init__(self, module: torch.nn.Module, encoder: TextEncoder, *, layered: bool = True) -> None:
        self.module, self.encoder = module, encoder
        # What learns; what follows it in a complete module, such as Dense layers, stays.
        self.model = cast("torch.nn.Module", module.model) if layered else module
        self._last_layer = layer_list(self.model)[1][-1] if layered else None

    def __call__(self, rows: Sequence[Row]) -> Forward:
        import torch

        inputs = self.encoder.batch(rows)
        if self._last_layer is None:
            return Forward(self.module(*(torch.from_numpy(array) for array in inputs.values())), None)
        outputs: list[Any] = []
        # Only for this call: a copy of the module must not copy the hook.
        hook = self._last_layer.register_forward_hook(lambda layer, arguments, output: outputs.append(output))
        try:
            answers = self.module(*(torch.from_numpy(array) for array in inputs.values()))
        finally:
            hook.remove()
        states = outputs[-1][0] if isinstance(outputs[-1], tuple) else outputs[-1]
        mask = torch.from_numpy(mask_of(inputs, rows).astype(bool))
        aligned = isinstance(states, torch.Tensor) and states.shape[:-1] == mask.shape
        return Forward(answers, states[mask] if aligned else None)

    def answers(self, rows: Sequence[Row]) -> np.ndarray[Any, Any]:
        """The answers to all rows, in their order."""
        import torch

        batches = by_length([len(row.ids) for row in rows])
        with torch.inference_mode():
            parts = [self([rows[index] for index in batch]).answers for batch in batches]
        order = np.argsort([index for batch in batches for index in batch])
        return np.asarray(torch.cat(parts).numpy()[order])


class TeacherAnswers:
    """The teacher's answers to the texts of a run, in files of `folder`. Each is computed when it is first needed."""

    def __init__(self, folder: Path, teacher: Runner, rows: Sequence[Row], *, width: int, hidden: int | None) -> None:
        """`hidden` is the width of the token vectors of the last layer; None keeps none of them."""
        self._teacher, self._rows = teacher, rows
        self.lengths = [len(row.ids) for row in rows]
        self._ends = np.cumsum(self.lengths)
        tokens = int(self._ends[-1])
        self._known = _array(folder / "known.u8", np.uint8, (len(rows), 1))
        self._answers = _array(folder / "answers.f32", np.float32, (len(rows), width))
        self._states: np.memmap[Any, Any] | None = None
        if hidden is not None and tokens * hidden * np.dtype(np.float16).itemsize <= _MOST_STATE_BYTES:
            self._states = _array(folder / "states.f16", np.float16, (tokens, hidden))

    def of(self, batch: Sequence[int]) -> Forward:
        import torch

        if unknown := [index for index in batch if not self._known[index]]:
            self._ask(unknown)
        answers = torch.from_numpy(self._answers[list(batch)])
        if self._states is None:
            return Forward(answers, None)
        states = torch.from_numpy(self._states[self._tokens(batch)]).float()
        # An array begins as zeros: the teacher's last layer gave no vector for each token.
        return Forward(answers, states if bool(states.any()) else None)

    def _ask(self, batch: Sequence[int]) -> None:
        import torch

        with torch.inference_mode():
            forward = self._teacher([self._rows[index] for index in batch])
            self._answers[batch] = forward.answers.numpy()
            # Values beyond the range of half floats are rare, and no vector to learn from.
            if self._states is not None and forward.states is not None and forward.states.abs().max() < _LARGEST_HALF:
                self._states[self._tokens(batch)] = forward.states.to(torch.float16).numpy()
        self._known[batch] = 1

    def _tokens(self, batch: Sequence[int]) -> np.ndarray[Any, Any]:
        return np.concatenate(
            [np.arange(self._ends[index] - self.lengths[index], self._ends[index]) for index in batch]
        )

    def save(self) -> None:
        """What is marked as known is on the disk before the mark is."""
        for array in (self._answers, self._states, self._known):
            if array is not None:
                array.flush()


def _array(path: Path, kind: Any, shape: tuple[int, int]) -> np.memmap[Any, Any]:
    """A file that begins as zeros, or as it was left."""
    return np.memmap(path, kind, "r+" if path.is_file() else "w+", shape=shape)
