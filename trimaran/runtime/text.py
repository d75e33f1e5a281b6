"""Text in, answers out, around any engine: tokenise, run rows without padding waste, put rows back in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Infer = Callable[[Mapping[str, Array]], Mapping[str, Array]]
Text = str | tuple[str, str]


class Row(NamedTuple):
    """One tokenised text, unpadded."""

    ids: Sequence[int]
    type_ids: Sequence[int]


class TextEncoder:
    """Tokenises with Hugging Face `tokenizers` and builds the engine's inputs."""

    def __init__(
        self,
        tokenizer_file: str,
        *,
        inputs: Sequence[str],
        minimum: int,
        maximum: int,
        pad_id: int,
        pad_type_id: int = 0,
        pad_side: str = "right",
    ) -> None:
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_file(tokenizer_file)
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(max_length=maximum)
        self._inputs = tuple(inputs)
        self._minimum = minimum
        self._pad_id, self._pad_type_id, self._pad_left = pad_id, pad_type_id, pad_side == "left"

    def rows(self, texts: Sequence[Text]) -> list[Row]:
        return [Row(found.ids, found.type_ids) for found in self._tokenizer.encode_batch(list(texts))]

    def batch(self, rows: Sequence[Row], *, length: int = 0) -> dict[str, Array]:
        """The engine's inputs for these rows, padded to the longest of them (or to `length`)."""
        width = max(length, self._minimum, *(len(row.ids) for row in rows))
        shape = (len(rows), width)
        arrays = {
            "input_ids": np.full(shape, self._pad_id, np.int64),
            "attention_mask": np.zeros(shape, np.int64),
            "token_type_ids": np.full(shape, self._pad_type_id, np.int64),
        }
        for index, row in enumerate(rows):
            size = len(row.ids)
            place = slice(width - size, width) if self._pad_left else slice(0, size)
            arrays["input_ids"][index, place] = row.ids
            arrays["attention_mask"][index, place] = 1
            arrays["token_type_ids"][index, place] = row.type_ids
        return {name: arrays[name] for name in self._inputs}


def groups_of(lengths: Sequence[int], policy: str, maximum_batch: int) -> Iterator[list[int]]:
    """Which rows go through the engine together. Policies: `alone`, `equal-length`, `padded`.

    Rows are taken in order of length, and `padded` rows share a call only while the longest has at most an eighth
    more tokens than the shortest: on a CPU a padded token costs as much as a real one, and a call little.
    """
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    limit = 1 if policy == "alone" else maximum_batch
    stretch = 1.0 if policy == "equal-length" else 1.125
    group: list[int] = []
    for index in order:
        if len(group) == limit or (group and lengths[index] > stretch * lengths[group[0]]):
            yield group
            group = []
        group.append(index)
    if group:
        yield group


def infer_rows(
    infer: Infer, encoder: TextEncoder, rows: Sequence[Row], *, policy: str, maximum_batch: int
) -> dict[str, Array]:
    """Outputs in the order of `rows`, whatever groups the engine saw."""
    results: dict[str, Array] = {}
    for group in groups_of([len(row.ids) for row in rows], policy, maximum_batch):
        outputs = infer(encoder.batch([rows[index] for index in group]))
        for name, array in outputs.items():
            if name not in results:
                results[name] = np.empty((len(rows), *array.shape[1:]), array.dtype)
            results[name][group] = array
    return results


def softmax(logits: Array) -> Array:
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    exponents = np.exp(shifted)
    return np.asarray(exponents / exponents.sum(axis=-1, keepdims=True), np.float32)


def ranked_labels(logits: Array, labels: Sequence[str]) -> tuple[npt.NDArray[np.object_], Array]:
    """Labels and probabilities of each row, most probable first."""
    probabilities = softmax(logits)
    order = np.argsort(-probabilities, axis=-1, kind="stable")
    names = np.asarray([label.encode("utf-8") for label in labels], dtype=np.object_)
    return names[order], np.take_along_axis(probabilities, order, axis=-1)
