"""The Triton stage to call: strings in, final answers out, with the engine in the same process.

It is copied as `model.py` beside `serving.json`, the engine's file and the other files of `runtime` that it needs, and
imports nothing else of ours.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .answers import Answering, Reader
from .pulse import Pulse
from .shadow import CANARY, Sampler
from .tasks import served_task
from .text import STRETCH, TextEncoder
from .wire import MOST_ENTRIES, OPTIONS, READ_COUNT, TRUNCATED, Answer, Tensors

# The module and class of an engine, where they are not named after the backend.
ENGINES = {
    "tensorrt_rtx": ("tensorrt_engine", "Engine"),
    "onnxruntime_cuda": ("onnxruntime_gpu_engine", "CudaEngine"),
}


class AskedRow(NamedTuple):
    """One row of a request: what is answered about, and the keywords of how, as JSON so that equals are found."""

    item: Any
    keywords: str
    # The strings of the row; None where the request is no caller's.
    strings: Mapping[str, Any] | None = None


class AnsweredRow(NamedTuple):
    """The answer to one row."""

    answer: Answer
    # The texts of the row that were cut.
    truncated: int
    # The tokens that the model read for it.
    tokens: int


def opened(
    folder: Path, *, threads: int | None = None, pulse: Pulse | None = None, at_once: bool = False
) -> tuple[Any, Answering, dict[str, Any]]:
    """The engine of a version's folder, with all that stands around it, and the settings that it was opened with.

    `threads` takes the place of what the settings say; the engine's calls show in the `pulse`. With `at_once`, what
    only makes answers faster is made while the engine already answers.
    """
    pulse = pulse or Pulse()
    settings = json.loads((folder / "serving.json").read_text(encoding="utf-8"))
    if settings["backend"] in ("tensorrt", "tensorrt_rtx"):
        settings = importlib.import_module(".tensorrt_engine", __package__).settings_here(folder, settings)
    # The engine's library and the tokenizer's thread pool read these once, when they are first imported.
    os.environ.update(settings["execution_environment"])
    # Where the server was given fewer CPUs than it was measured on, more threads would only wait for each other.
    threads = min(threads or settings["threads"], len(os.sched_getaffinity(0)))
    os.environ.setdefault("RAYON_NUM_THREADS", str(threads))
    module, engine_class = ENGINES.get(settings["backend"], (f"{settings['backend']}_engine", "Engine"))
    open_engine = getattr(importlib.import_module(f".{module}", __package__), engine_class)
    streams = min(settings.get("streams", 1), threads)
    more: dict[str, Any] = {"streams": streams} if streams > 1 else {}
    if at_once and settings["backend"] == "openvino":
        more["copies_later"] = True
    engine = open_engine(str(folder / settings["entry"]), threads=threads, options=settings["engine_options"], **more)
    sequence = settings["profile"]["sequence"]
    tokenizer = str(folder / "tokenizer.json")
    answering = Answering(
        infer=pulse.through(engine.infer),
        encoder=TextEncoder(
            tokenizer, minimum=sequence["minimum"], maximum=sequence["maximum"], **settings["tokenizer"]
        ),
        reader=Reader(tokenizer),
        labels=settings["labels"],
        facts=settings["facts"],
        policy=settings["rows"],
        maximum_batch=settings.get("rows_a_call") or settings["profile"]["batch"]["maximum"],
        stretch=settings.get("stretch", STRETCH),
        infer_many=pulse.through(engine.infer_many) if streams > 1 else None,
    )
    return engine, answering, settings


class TritonPythonModel:
    def initialize(self, args: Mapping[str, str]) -> None:
        import triton_python_backend_utils

        self._triton: Any = triton_python_backend_utils
        self._pulse = Pulse()
        self._engine, self._served, settings = opened(Path(__file__).parent, pulse=self._pulse, at_once=True)
        self._task = served_task(settings["task"])
        self._count_truncated = self._counter(args)
        self._shadow = Sampler(triton_python_backend_utils, self._task.tensors, args)

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Answers every request of a batch; one that cannot be read or answered gets an error of its own."""
        with self._pulse.working():
            return self._responses(requests)

    def _responses(self, requests: Sequence[Any]) -> list[Any]:
        read = [self._rows_of(request) for request in requests]
        rows = [row for rows_or_error in read if isinstance(rows_or_error, list) for row in rows_or_error]
        try:
            answers = self._answered(rows)
        except Exception:  # one of them cannot be answered: each request is tried by itself, to find which
            return [
                rows_or_error if not isinstance(rows_or_error, list) else self._alone(rows_or_error)
                for rows_or_error in read
            ]
        responses, begin = [], 0
        for rows_or_error in read:
            if not isinstance(rows_or_error, list):
                responses.append(rows_or_error)
                continue
            responses.append(self._response(answers[begin : begin + len(rows_or_error)]))
            begin += len(rows_or_error)
        return responses

    def finalize(self) -> None:
        self._shadow.close()
        self._engine.close()

    def _answered(self, rows: Sequence[AskedRow]) -> list[AnsweredRow]:
        """Answers in the order of the rows; those asked in the same way are answered together."""
        answers: list[Any] = [None] * len(rows)
        ways: dict[str, list[int]] = {}
        for index, row in enumerate(rows):
            ways.setdefault(row.keywords, []).append(index)
        for keywords, indices in ways.items():
            options, items = json.loads(keywords), [rows[index].item for index in indices]
            with self._served.encoder.noting_rows() as notes:
                task_answers = self._task.answer(self._served, items, **options)
            begin = 0
            for index, item, answer in zip(indices, items, task_answers, strict=True):
                end = begin + self._task.encoded_rows(item, options)
                truncated = self._task.truncated(notes.truncated[begin:end])
                answers[index] = AnsweredRow(answer, truncated, sum(notes.tokens[begin:end]))
                begin = end
        self._shadow.offer([row.strings for row in rows], [row.answer for row in answers])
        return answers

    def _counter(self, args: Mapping[str, str]) -> Any:
        """Adds to Triton's own metrics, where this Triton has them for Python models."""
        if not hasattr(self._triton, "MetricFamily"):
            return lambda count: None
        # Both are kept: what is not referred to is taken out of the metrics.
        self._family = self._triton.MetricFamily(
            name="trimaran_truncated_texts",
            description="Texts of which a model read only a part, because they were longer than it reads.",
            kind=self._triton.MetricFamily.COUNTER,
        )
        labels = {"model": args.get("model_name", ""), "version": args.get("model_version", "")}
        self._metric = self._family.Metric(labels=labels)
        return self._metric.increment

    def _alone(self, rows: Sequence[AskedRow]) -> Any:
        try:
            return self._response(self._answered(rows))
        except ValueError as error:
            return self._refusal(str(error))
        except Exception as error:  # whatever the engine says of this request's values, the others are answered
            return self._triton.InferenceResponse(error=self._triton.TritonError(str(error)))

    def _response(self, answers: Sequence[AnsweredRow]) -> Any:
        tensors: Tensors = self._task.tensors([row.answer for row in answers])
        tensors[READ_COUNT] = np.asarray([[row.tokens] for row in answers], np.int32)
        tensors[TRUNCATED] = np.asarray([[row.truncated] for row in answers], np.int32)
        if truncated := sum(row.truncated for row in answers):
            self._count_truncated(truncated)
        return self._triton.InferenceResponse([self._triton.Tensor(name, array) for name, array in tensors.items()])

    def _refusal(self, sentence: str) -> Any:
        error = self._triton.TritonError(sentence, self._triton.TritonError.INVALID_ARG)
        return self._triton.InferenceResponse(error=error)

    def _rows_of(self, request: Any) -> list[AskedRow] | Any:
        """The request's rows, or the response that says why they cannot be read."""
        try:
            return self._read(request)
        except UnicodeDecodeError as error:
            return self._refusal(
                f"A text is not valid UTF-8 ({error.reason} at byte {error.start}). Send UTF-8 encoded bytes."
            )
        except ValueError as error:
            return self._refusal(str(error))

    def _read(self, request: Any) -> list[AskedRow]:
        columns: dict[str, list[Any]] = {}
        for field in self._task.inputs:
            tensor = self._triton.get_input_tensor_by_name(request, field.name)
            if tensor is None:
                continue
            rows = [[value.decode("utf-8") for value in row.ravel()] for row in tensor.as_numpy()]
            if not all(rows):
                raise ValueError(f"{field.name} holds nothing. Send at least one.")
            if field.many and sum(map(len, rows)) > MOST_ENTRIES:
                raise ValueError(f"{field.name} holds more than {MOST_ENTRIES} entries. Send several requests.")
            columns[field.name] = rows if field.many else [row[0] for row in rows]
        options = self._triton.get_input_tensor_by_name(request, OPTIONS)
        size = len(next(iter(columns.values()), ()))
        if not size:
            raise ValueError(f"{self._task.inputs[0].name} holds no text. Send at least one.")
        texts = [""] * size if options is None else [value.decode("utf-8") for value in options.as_numpy().ravel()]
        sampled = self._shadow.active and request.request_id() != CANARY
        return [
            self._asked({OPTIONS: text, **{name: column[index] for name, column in columns.items()}}, sampled)
            for index, text in enumerate(texts)
        ]

    def _asked(self, row: Mapping[str, Any], sampled: bool) -> AskedRow:
        item, keywords = self._task.question(row)
        return AskedRow(item, json.dumps(keywords, sort_keys=True), row if sampled else None)
