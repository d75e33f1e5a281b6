"""Real texts through an open engine: one at a time, in mixed batches, or all at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from trimaran.runtime.text import Row, Text, TextEncoder, batch_of, groups_of, infer_rows

NanosecondClock = Callable[[], int]


class TextRuns:
    """Every run passes over whole sets of the texts, so that levels and candidates answer exactly the same ones.

    At `engine` the clock starts with tensors, at `pipeline` with the text.
    """

    def __init__(
        self,
        infer: Callable[[Mapping[str, Any]], Mapping[str, Any]],
        encoder: TextEncoder,
        texts: Sequence[Text],
        *,
        rows: str,
        maximum_batch: int,
        clock: NanosecondClock = time.perf_counter_ns,
    ) -> None:
        self._infer, self._encoder, self._texts, self._clock = infer, encoder, texts, clock
        self._rows, self._maximum_batch = rows, maximum_batch
        self._tokens = encoder.rows(texts)
        self._inputs = [batch_of(encoder, [row], rows) for row in self._tokens]

    def stream(
        self, at: str, *, minimum_samples: int, minimum_time_s: float, warmup_samples: int, limit_s: float
    ) -> dict[str, Any]:
        """Nanoseconds of each text, in whole passes until there are enough samples AND enough time.

        `enough` is false when `limit_s` was over first.
        """
        run = {"engine": self._from_tensors, "pipeline": self._from_text}[at]
        warmup = [sum(run(index % len(self._texts))) for index in range(warmup_samples)]
        parts: list[tuple[int, int]] = []
        begun_ns = self._clock()

        def spent_s() -> float:
            return (self._clock() - begun_ns) / 1e9

        def enough() -> bool:
            return len(parts) >= minimum_samples and spent_s() >= minimum_time_s

        while not enough() and spent_s() < limit_s:
            for index in range(len(self._texts)):
                parts.append(run(index))
                if spent_s() >= limit_s:
                    break
        return {
            "samples_ns": [sum(pair) for pair in parts],
            "warmup_ns": warmup,
            "tokenise": [pair[0] for pair in parts] if at == "pipeline" else [],
            "compute": [pair[1] for pair in parts] if at == "pipeline" else [],
            "enough": enough(),
        }

    def mixed(self, at: str, *, batch: int, seed: int) -> dict[str, list[int]]:
        """One pass in random order, `batch` texts at a time, run together as the rows policy allows.

        An engine with `packed` rows leaves padding out, whatever its attention sees.
        """
        order = np.random.default_rng(seed).permutation(len(self._texts))
        figures: dict[str, list[int]] = {"elapsed_ns": [], "rows": [], "tokens": [], "padded_tokens": []}
        for begin in range(0, len(order), batch):
            chosen = [int(index) for index in order[begin : begin + batch]]
            figures["elapsed_ns"].append(self._together(at, chosen))
            lengths = [len(self._tokens[index].ids) for index in chosen]
            figures["rows"].append(len(chosen))
            figures["tokens"].append(sum(lengths))
            figures["padded_tokens"].append(sum(lengths) if self._rows == "packed" else self._places(chosen, lengths))
        return figures

    def _places(self, chosen: Sequence[int], lengths: Sequence[int]) -> int:
        groups = groups_of(lengths, self._rows, self._maximum_batch)
        calls = [batch_of(self._encoder, [self._tokens[chosen[i]] for i in group], self._rows) for group in groups]
        return sum(next(iter(inputs.values())).size for inputs in calls)

    def offline(self, at: str) -> dict[str, int]:
        """Everything at once."""
        elapsed_ns = self._together(at, range(len(self._texts)))
        return {
            "elapsed_ns": elapsed_ns,
            "texts": len(self._texts),
            "tokens": sum(len(row.ids) for row in self._tokens),
        }

    def _from_tensors(self, index: int) -> tuple[int, int]:
        begun_ns = self._clock()
        self._infer(self._inputs[index])
        return 0, self._clock() - begun_ns

    def _from_text(self, index: int) -> tuple[int, int]:
        begun_ns = self._clock()
        inputs = batch_of(self._encoder, self._encoder.rows([self._texts[index]]), self._rows)
        tokenised_ns = self._clock()
        self._infer(inputs)
        return tokenised_ns - begun_ns, self._clock() - tokenised_ns

    def _together(self, at: str, indices: Sequence[int]) -> int:
        texts = [self._texts[index] for index in indices]
        tokens: list[Row] = [self._tokens[index] for index in indices]
        begun_ns = self._clock()
        if at == "pipeline":
            tokens = self._encoder.rows(texts)
        infer_rows(self._infer, self._encoder, tokens, policy=self._rows, maximum_batch=self._maximum_batch)
        return self._clock() - begun_ns
