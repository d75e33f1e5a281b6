"""The Triton stage to call: text in, answers out, with the engine in the same process.

It is copied as `model.py` beside `text.py`, the engine's file and `serving.json`, and imports nothing else of ours.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .text import Array, Text, TextEncoder, infer_rows, ranked_labels, softmax

Answers = dict[str, Array]


def _embeddings(outputs: Mapping[str, Array], labels: Sequence[str]) -> Answers:
    return {"EMBEDDING": outputs["embedding"].astype(np.float32, copy=False)}


def _labels_and_scores(outputs: Mapping[str, Array], labels: Sequence[str]) -> Answers:
    """The output's name says whether its numbers still want a softmax: `logits` do, the others are final."""
    name, found = next(iter(outputs.items()))
    names, scores = ranked_labels(softmax(found) if name == "logits" else found, labels)
    return {"LABELS": names, "SCORES": scores}


ANSWERS: dict[str, Callable[[Mapping[str, Array], Sequence[str]], Answers]] = {
    "embedding": _embeddings,
    "text-classification": _labels_and_scores,
}


class TritonPythonModel:
    def initialize(self, args: Mapping[str, str]) -> None:
        import triton_python_backend_utils

        self._triton: Any = triton_python_backend_utils
        folder = Path(__file__).parent
        settings = json.loads((folder / "serving.json").read_text(encoding="utf-8"))
        # The engine's library and the tokenizer's thread pool read these once, when they are first imported.
        os.environ.update(settings["execution_environment"])
        os.environ.setdefault("RAYON_NUM_THREADS", str(settings["threads"]))
        engine = importlib.import_module(f".{settings['backend']}_engine", __package__)
        self._engine = engine.Engine(
            str(folder / settings["entry"]), threads=settings["threads"], options=settings["engine_options"]
        )
        sequence = settings["profile"]["sequence"]
        self._encoder = TextEncoder(
            str(folder / "tokenizer.json"),
            minimum=sequence["minimum"],
            maximum=sequence["maximum"],
            **settings["tokenizer"],
        )
        self._rows = settings["rows"]
        self._maximum_batch = settings["profile"]["batch"]["maximum"]
        self._answers = ANSWERS[settings["task"]]
        self._labels = settings["labels"]

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Answers every request of a batch; one that cannot be read gets an error of its own."""
        read = [self._texts_of(request) for request in requests]
        texts = [text for found in read if isinstance(found, list) for text in found]
        answers = self._answer(texts) if texts else {}
        responses, begin = [], 0
        for found in read:
            if isinstance(found, str):
                error = self._triton.TritonError(found, self._triton.TritonError.INVALID_ARG)
                responses.append(self._triton.InferenceResponse(error=error))
                continue
            rows = slice(begin, begin + len(found))
            begin = rows.stop
            tensors = [self._triton.Tensor(name, array[rows]) for name, array in answers.items()]
            responses.append(self._triton.InferenceResponse(output_tensors=tensors))
        return responses

    def finalize(self) -> None:
        self._engine.close()

    def _answer(self, texts: Sequence[Text]) -> Answers:
        rows = self._encoder.rows(texts)
        outputs = infer_rows(
            self._engine.infer, self._encoder, rows, policy=self._rows, maximum_batch=self._maximum_batch
        )
        return self._answers(outputs, self._labels)

    def _texts_of(self, request: Any) -> list[Text] | str:
        """The request's texts, or the sentence that says why they cannot be read."""
        try:
            firsts = self._decoded(request, "TEXT")
            seconds = self._decoded(request, "TEXT_PAIR")
        except UnicodeDecodeError as error:
            return f"A text is not valid UTF-8 ({error.reason} at byte {error.start}). Send UTF-8 encoded bytes."
        if not firsts:
            return "TEXT holds no text. Send at least one."
        return list(zip(firsts, seconds, strict=True)) if seconds else list(firsts)

    def _decoded(self, request: Any, name: str) -> list[str]:
        tensor = self._triton.get_input_tensor_by_name(request, name)
        return [] if tensor is None else [value.decode("utf-8") for value in tensor.as_numpy().ravel()]
