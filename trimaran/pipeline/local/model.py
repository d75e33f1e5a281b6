"""An open model of any task: its facts, its lifetime, and one call at a time."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from types import TracebackType
from typing import Any, Self

from trimaran.core.artifact import Artifact
from trimaran.core.backends import backend
from trimaran.core.errors import UsageError
from trimaran.pipeline.local.opening import OpenModel, Source, manifest_of, open_source
from trimaran.runtime.tasks import served_task
from trimaran.serving.client import given

# Texts that are tokenised together. It bounds the memory of a call with very many texts.
WINDOW = 4096


class EvaluationLog:
    """Keeps what evaluators of sentence-transformers report, where a trained model has its model card."""

    def __init__(self) -> None:
        self.metrics: dict[str, Mapping[str, float]] = {}

    def set_evaluation_metrics(self, evaluator: Any, metrics: Mapping[str, float], *when: Any) -> None:
        self.metrics[getattr(evaluator, "name", "") or type(evaluator).__name__] = dict(metrics)


class LocalModel:
    """A proven model in this process, made by `trimaran.load`.

    It answers with the code that serves it: tokenizer, prompts, rows policy and engine are those of the server.
    Any number of threads may share it; their calls take turns, because one call uses all of the model's threads.
    It can be pickled: a copy opens the same files again, when it is first asked.

    Examples:
        >>> with trimaran.load("sentiment") as model:
        ...     model.classify("A fine day.")
        [{'label': 'positive', 'score': 0.98}]
    """

    def __init__(self, source: Source, *, threads: int | None = None) -> None:
        self._source, self._threads = source, threads
        self._open: OpenModel | None = None
        self._closed = False
        self._max_seq_length: int | None = None
        self._truncated = 0
        self._lock = threading.RLock()
        self.model_card_data = EvaluationLog()

    @cached_property
    def manifest(self) -> Artifact:
        """What was made and proven: precision, shapes, checks, lineage."""
        return manifest_of(self._source)

    @property
    def name(self) -> str:
        return self.manifest.name

    @property
    def task(self) -> str:
        return self.manifest.task

    @property
    def labels(self) -> tuple[str, ...]:
        return self.manifest.labels

    @property
    def prompts(self) -> Mapping[str, str]:
        """The words that may be put before a text, by name."""
        return dict(self.manifest.tokenizer.prompts)

    @property
    def rows(self) -> str:
        """Which rows were proven to share a call of the engine without changing each other's answers."""
        return self._source.rows

    @property
    def truncated(self) -> int:
        """How many texts or pairs were longer than the model reads, and were cut, since it was loaded."""
        return self._truncated

    @property
    def max_seq_length(self) -> int:
        """Tokens of the longest text that is read whole. It may be set to less than what was proven."""
        return self._max_seq_length or self.manifest.profile.sequence.maximum

    @max_seq_length.setter
    def max_seq_length(self, tokens: int) -> None:
        proven = self.manifest.profile.sequence.maximum
        if not 1 <= tokens <= proven:
            raise UsageError(
                f"max_seq_length wants 1 to {proven} tokens, found {tokens}.",
                hint="Deploy the model with a longer --sequence to read longer texts.",
            )
        with self._lock:
            self._max_seq_length = tokens
            if self._open:
                self._open.encoder.cut_at(tokens)

    @property
    def device(self) -> Any:
        """As torch names it."""
        import torch

        return torch.device("cuda" if backend(self.manifest.backend).needs_driver else "cpu")

    def open(self) -> Self:
        """Opens the engine now instead of at the first call. Raises UnavailableError where it cannot run here."""
        self._opened()
        return self

    def close(self) -> None:
        """Frees the engine. Closing twice is harmless; a closed model raises UsageError when it is asked."""
        with self._lock:
            if self._open:
                self._open.close()
            self._open, self._closed = None, True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        made = self.manifest
        return f"<{type(self).__name__} {made.name}: {made.task}, {made.backend} {made.precision}, rows {self.rows}>"

    def __getattr__(self, name: str) -> Any:
        """Only for names that the model does not have: says what it is for."""
        methods = [key for key, value in vars(type(self)).items() if callable(value) and not key.startswith("_")]
        raise AttributeError(
            f"{type(self).__name__} has no {name!r}. It is asked with: {', '.join(methods)}.", name=name, obj=self
        )

    def __getstate__(self) -> dict[str, Any]:
        return {"source": self._source, "threads": self._threads, "max_seq_length": self._max_seq_length}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["source"], threads=state["threads"])  # type: ignore[misc]
        self._max_seq_length = state["max_seq_length"]

    def _opened(self) -> OpenModel:
        with self._lock:
            if self._closed:
                raise UsageError(f"The model {self.name} was closed.", hint="Load it again with trimaran.load.")
            if self._open is None:
                self._open = open_source(self._source, threads=self._threads)
                if self._max_seq_length:
                    self._open.encoder.cut_at(self._max_seq_length)
            return self._open

    def _require_settings(self, device: Any, batch_size: int, pool: Any) -> None:
        """Arguments of sentence-transformers that say how to compute. They change nothing here, or are refused."""
        given.count("batch_size", batch_size)
        if pool is not None:
            raise UsageError(
                "This model takes no pool of processes.", hint="Leave out pool: one call uses all threads."
            )
        if device is not None and str(device).partition(":")[0] != self.device.type:
            raise UsageError(
                f"{self.name} runs on the {self.device.type} ({self.manifest.backend}), not on {device}.",
                hint="Leave out device, or deploy the model for that device.",
            )

    def _answers(self, items: Sequence[Any], **options: Any) -> list[Any]:
        """One answer an item, by the function that serves the task. Raises UsageError for what it refuses."""
        answers: list[Any] = []
        for begin in range(0, len(items), WINDOW):
            answers += self._answered(items[begin : begin + WINDOW], options)
        return answers

    def _answered(self, items: Sequence[Any], options: Mapping[str, Any]) -> list[Any]:
        with self._lock:
            model = self._opened()
            try:
                with model.encoder.noting_truncated() as truncated:
                    return served_task(self.task).answer(model.answering, items, **options)
            except ValueError as error:
                raise UsageError(str(error)) from error
            finally:
                self._truncated += sum(truncated)
