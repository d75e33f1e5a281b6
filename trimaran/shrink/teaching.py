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

# Of the token vectors that are kept on disk.
_MOST_STATE_BYTES = 2 << 30
_LARGEST_HALF = 6e4


class Forward(NamedTuple):
    """What a model made of some texts."""

    # One row for each text.
    answers: torch.Tensor
    # What the noted layers gave for each token, texts one after the other: `[tokens, layers, width]`. None where no
    # layer is noted, or where one gave something else.
    states: torch.Tensor | None


class Runner:
    """Runs a module on tokenised texts, with or without gradients.

    `complete`: it is a complete module whose `model` is one of transformers. What its layers `noted` give is kept.
    """

    def __init__(
        self, module: torch.nn.Module, encoder: TextEncoder, *, complete: bool = True, noted: Sequence[int] = ()
    ) -> None:
        self.module, self.encoder = module, encoder
        # What learns; what follows it in a complete module, such as Dense layers, stays.
        self.model = cast("torch.nn.Module", module.model) if complete else module
        self._noted: list[torch.nn.Module] = []
        self.note(noted)

    def note(self, layers: Sequence[int]) -> None:
        """Keep what these layers give, in every call from now on."""
        self._noted = [layer_list(self.model)[1][index] for index in layers]

    def __call__(self, rows: Sequence[Row]) -> Forward:
        import torch

        inputs = self.encoder.batch(rows)
        outputs: list[Any] = []
        # Only for this call: a copy of the module must not copy the hooks.
        hooks = [
            layer.register_forward_hook(lambda layer, arguments, output: outputs.append(output))
            for layer in self._noted
        ]
        try:
            answers = self.module(*(torch.from_numpy(array) for array in inputs.values()))
        finally:
            for hook in hooks:
                hook.remove()
        if not hooks:
            return Forward(answers, None)
        mask = torch.from_numpy(mask_of(inputs, rows).astype(bool))
        states = [output[0] if isinstance(output, tuple) else output for output in outputs]
        # A layer may be called more than once, or with the texts in another form.
        aligned = len(states) == len(hooks) and all(
            isinstance(each, torch.Tensor) and each.shape[:-1] == mask.shape for each in states
        )
        return Forward(answers, torch.stack([each[mask] for each in states], dim=1) if aligned else None)

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

    def __init__(
        self, folder: Path, teacher: Runner, rows: Sequence[Row], *, width: int, layers: int, hidden: int
    ) -> None:
        """`layers`: how many of its layers the teacher notes. `hidden`: the width of their token vectors."""
        self._teacher, self._rows = teacher, rows
        self.lengths = [len(row.ids) for row in rows]
        self._ends = np.cumsum(self.lengths)
        self._known = _array(folder / "known.u8", np.uint8, (len(rows), 1))
        self._answers = _array(folder / "answers.f32", np.float32, (len(rows), width))
        self._states: np.memmap[Any, Any] | None = None
        if layers:
            self._states = _array(folder / "states.f16", np.float16, (int(self._ends[-1]), layers, hidden))

    def of(self, batch: Sequence[int]) -> Forward:
        import torch

        if unknown := [index for index in batch if not self._known[index]]:
            self._ask(unknown)
        answers = torch.from_numpy(self._answers[list(batch)])
        if self._states is None:
            return Forward(answers, None)
        states = torch.from_numpy(self._states[self._tokens(batch)]).float()
        # An array begins as zeros: a layer of the teacher gave no vector for each token.
        return Forward(answers, states if bool(states.any()) else None)

    def _ask(self, batch: Sequence[int]) -> None:
        import torch

        with torch.inference_mode():
            forward = self._teacher([self._rows[index] for index in batch])
            self._answers[batch] = forward.answers.numpy()
            if self._states is not None and forward.states is not None:
                # Values beyond the range of half floats are rare. Vectors left out would be learnt as zeros.
                kept = forward.states.clamp(-_LARGEST_HALF, _LARGEST_HALF)
                self._states[self._tokens(batch)] = kept.to(torch.float16).numpy()
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


def layers_that_fit(layers: Sequence[int], rows: Sequence[Row], hidden: int) -> tuple[int, ...]:
    """The layers whose token vectors are kept: all, only the last one, or none, as far as there is room."""
    a_layer = sum(len(row.ids) for row in rows) * hidden * np.dtype(np.float16).itemsize
    kept = tuple(layers) if len(layers) * a_layer <= _MOST_STATE_BYTES else tuple(layers[-1:])
    return kept if len(kept) * a_layer <= _MOST_STATE_BYTES else ()


def _array(path: Path, kind: Any, shape: tuple[int, ...]) -> np.memmap[Any, Any]:
    """A file that begins as zeros, or as it was left."""
    return np.memmap(path, kind, "r+" if path.is_file() else "w+", shape=shape)
