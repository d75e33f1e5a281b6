"""A Triton stage that tokenises and nothing else: the first step of an ensemble whose engine is a model of its own.

It is copied as `model.py` beside `text.py`, `tokenizer.json` and `serving.json`, and imports nothing else of ours.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .text import Text, TextEncoder

# Requests are joined to a batch only where their shapes are equal, so lengths are rounded up to a few.
BUCKET = 16


class TritonPythonModel:
    def initialize(self, args: Mapping[str, str]) -> None:
        import triton_python_backend_utils

        self._triton: Any = triton_python_backend_utils
        folder = Path(__file__).parent
        settings = json.loads((folder / "serving.json").read_text(encoding="utf-8"))
        os.environ.setdefault("RAYON_NUM_THREADS", "1")
        sequence = settings["profile"]["sequence"]
        self._longest = int(sequence["maximum"])
        self._encoder = TextEncoder(
            str(folder / "tokenizer.json"),
            minimum=sequence["minimum"],
            maximum=self._longest,
            **settings["tokenizer"],
        )

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        return [self._response(request) for request in requests]

    def _response(self, request: Any) -> Any:
        try:
            firsts, seconds = self._decoded(request, "TEXT"), self._decoded(request, "TEXT_PAIR")
            texts: list[Text] = list(zip(firsts, seconds, strict=True)) if seconds else list(firsts)
            with self._encoder.noting_truncated() as truncated:
                rows = self._encoder.rows(texts)
        except UnicodeDecodeError as error:
            return self._refusal(
                f"A text is not valid UTF-8 ({error.reason} at byte {error.start}). Send UTF-8 encoded bytes."
            )
        except ValueError as error:
            return self._refusal(str(error))
        longest = max(len(row.ids) for row in rows)
        length = min(self._longest, -(-longest // BUCKET) * BUCKET)
        # Names as in `wire.py`, which this stage does not carry.
        arrays = {
            **self._encoder.batch(rows, length=length),
            "TRUNCATED": np.asarray([[int(cut)] for cut in truncated], np.int32),
            "TOKEN_COUNT": np.asarray([[len(row.ids)] for row in rows], np.int32),
        }
        return self._triton.InferenceResponse([self._triton.Tensor(name, array) for name, array in arrays.items()])

    def _refusal(self, sentence: str) -> Any:
        error = self._triton.TritonError(sentence, self._triton.TritonError.INVALID_ARG)
        return self._triton.InferenceResponse(error=error)

    def _decoded(self, request: Any, name: str) -> list[str]:
        tensor = self._triton.get_input_tensor_by_name(request, name)
        return [] if tensor is None else [value.decode("utf-8") for value in tensor.as_numpy().ravel()]
