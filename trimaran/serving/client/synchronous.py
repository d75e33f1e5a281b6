"""The client for ordinary code."""

from __future__ import annotations

import concurrent.futures
import copy
import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, TypeVar, overload

from trimaran.core.errors import RequestFailed, ServerError
from trimaran.runtime.text import Text
from trimaran.serving.client import calls, failures, given
from trimaran.serving.client.calls import Answer, Ask, Embeddings, Model, Ranking, TokenVectors, TokenWeights
from trimaran.serving.client.endpoint import Protocol, place_of, ready_versions, unknown_model
from trimaran.serving.client.given import StringOrStrings, TextOrTexts
from trimaran.serving.client.http_channel import HttpChannel
from trimaran.serving.client.triton_channel import GrpcChannel

Result = TypeVar("Result")
_CHANNELS: dict[Protocol, type[GrpcChannel] | type[HttpChannel]] = {"grpc": GrpcChannel, "http": HttpChannel}


class Client:
    """A connection to one Triton, for any number of threads; a context manager.

    `timeout_s` bounds a whole call with all its requests and retries; `concurrency` the requests in flight at a time.
    A list of texts gets a list of answers, one string gets one answer. A pair of texts stands in a list.
    Raises NotReady, Overloaded, TimedOut, RequestFailed, or UsageError for what cannot be asked.
    """

    def __init__(
        self,
        url: str = "",
        *,
        protocol: Protocol = "grpc",
        timeout_s: float = 60.0,
        concurrency: int = 4,
        retries: int = 4,
    ) -> None:
        self._place = place_of(url, protocol, timeout_s=timeout_s, concurrency=concurrency, retries=retries)
        self._channel = _CHANNELS[protocol](self._place)
        self._workers = concurrent.futures.ThreadPoolExecutor(concurrency, thread_name_prefix="trimaran-client")
        self._models: dict[str, Model] = {}

    @property
    def url(self) -> str:
        return self._place.address

    def using(
        self, *, timeout_s: float | None = None, headers: Mapping[str, str] | None = None, request_id: str | None = None
    ) -> Client:
        """The same connection with another deadline, other headers or a request id."""
        view = copy.copy(self)
        view._place = self._place.using(timeout_s, headers, request_id)
        return view

    def embed(self, name: str, texts: TextOrTexts, *, prompt: str | None = None) -> Embeddings:
        """One row a text, in the order of the texts; one vector for one string.

        `prompt` names one of the model's prompts, such as `query`.
        """
        return self._call(name, lambda model: calls.embed(model, texts, prompt=prompt))

    # The overloads overlap for mypy because a string is an iterable of strings; the first one is taken.
    @overload
    def classify(  # type: ignore[overload-overlap]
        self,
        name: str,
        texts: str,
        *,
        labels: Iterable[str] | None = None,
        template: str | None = None,
        multi_label: bool | None = None,
    ) -> Ranking: ...

    @overload
    def classify(
        self,
        name: str,
        texts: Iterable[Text],
        *,
        labels: Iterable[str] | None = None,
        template: str | None = None,
        multi_label: bool | None = None,
    ) -> list[Ranking]: ...

    def classify(
        self,
        name: str,
        texts: TextOrTexts,
        *,
        labels: Iterable[str] | None = None,
        template: str | None = None,
        multi_label: bool | None = None,
    ) -> Any:
        """Of each text every label with its score, best first; a zero-shot model is told the labels."""
        return self._call(
            name, lambda model: calls.classify(model, texts, labels=labels, template=template, multi_label=multi_label)
        )

    def entities(
        self,
        name: str,
        texts: StringOrStrings,
        *,
        aggregation: str | None = None,
        ignore: Iterable[str] | None = None,
        stride: int | None = None,
    ) -> list[Any]:
        """For each text the list of its entities, with character offsets; for one string that list alone."""
        return self._call(
            name, lambda model: calls.entities(model, texts, aggregation=aggregation, ignore=ignore, stride=stride)
        )

    def answer(
        self,
        name: str,
        pairs: tuple[str, str] | Iterable[tuple[str, str]],
        *,
        top_k: int | None = None,
        longest: int | None = None,
        stride: int | None = None,
        no_answer: bool | None = None,
    ) -> list[Any]:
        """For each (question, context) the list of the best spans of the context; for one pair that list alone."""
        return self._call(
            name,
            lambda model: calls.answer(model, pairs, top_k=top_k, longest=longest, stride=stride, no_answer=no_answer),
        )

    def fill(self, name: str, texts: StringOrStrings, *, top_k: int | None = None) -> list[Any]:
        """For each text and each mask in it, the most probable tokens; for one string only its masks."""
        return self._call(name, lambda model: calls.fill(model, texts, top_k=top_k))

    def rerank(
        self, name: str, query: str, documents: Iterable[str], *, top_k: int | None = None
    ) -> list[tuple[int, float]]:
        """Places in `documents` with their scores, best first."""
        return self._call(name, lambda model: calls.rerank(model, query, documents, top_k=top_k))

    @overload
    def tokens(self, name: str, texts: str) -> TokenVectors: ...  # type: ignore[overload-overlap]

    @overload
    def tokens(self, name: str, texts: Iterable[Text]) -> list[TokenVectors]: ...

    def tokens(self, name: str, texts: TextOrTexts) -> Any:
        """For each text its tokens with a vector each."""
        return self._call(name, lambda model: calls.tokens(model, texts))

    @overload
    def sparse(  # type: ignore[overload-overlap]
        self, name: str, texts: str, *, top_k: int | None = None, prompt: str | None = None
    ) -> TokenWeights: ...

    @overload
    def sparse(
        self, name: str, texts: Iterable[str], *, top_k: int | None = None, prompt: str | None = None
    ) -> list[TokenWeights]: ...

    def sparse(self, name: str, texts: StringOrStrings, *, top_k: int | None = None, prompt: str | None = None) -> Any:
        """For each text the tokens that it weighs, heaviest first. `prompt` names one of the model's prompts."""
        return self._call(name, lambda model: calls.sparse(model, texts, top_k=top_k, prompt=prompt))

    def query(self, name: str, texts: Any) -> Any:
        """What the model is for, asked with its defaults."""
        return self._call(name, lambda model: calls.query(model, texts))

    def ask(self, name: str, build: Callable[[Model], Ask[Answer]]) -> Answer:
        """Requests of one's own making, with this client's deadline, retries and concurrency."""
        return self._call(name, build)

    def models(self) -> tuple[str, ...]:
        """The models that are ready."""
        return tuple(self.versions())

    def versions(self) -> dict[str, int]:
        """The models that are ready, each with its newest version."""
        return ready_versions(self._sent(self._channel.index, end=self._end()))

    def model(self, name: str) -> Model:
        """What the server says of a model; asked once."""
        return self._model(name, self._end())

    def close(self) -> None:
        """Ends the connection; a request still in flight fails."""
        self._workers.shutdown(wait=False, cancel_futures=True)
        self._channel.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _call(self, name: str, build: Callable[[Model], Ask[Answer]]) -> Answer:
        end = self._end()
        ask = build(self._model(name, end))

        def infer(inputs: calls.Tensors) -> calls.Tensors:
            return self._sent(self._channel.infer, name, inputs, ask.outputs, end=end)

        # One request is asked here: a thread's hand-over would be most of a fast model's latency.
        if len(ask.requests) <= 1:
            return ask.join([infer(inputs) for inputs in ask.requests])
        running = [self._workers.submit(infer, inputs) for inputs in ask.requests]
        try:
            return ask.join([future.result(timeout=max(0.0, end - time.monotonic())) for future in running])
        except TimeoutError as error:
            raise failures.timed_out(self._place.address, self._place.timeout_s) from error
        finally:
            for future in running:
                future.cancel()

    def _end(self) -> float:
        return time.monotonic() + self._place.timeout_s

    def _model(self, name: str, end: float) -> Model:
        if given.string("name", name) not in self._models:
            try:
                config = self._sent(self._channel.config, name, end=end)
            except RequestFailed as error:
                known = tuple(ready_versions(self._sent(self._channel.index, end=end)))
                if name in known:
                    raise
                raise unknown_model(self._place, name, known) from error
            self._models[name] = Model.from_config(name, config)
        return self._models[name]

    def _sent(self, send: Callable[..., Result], *arguments: Any, end: float) -> Result:
        for attempt in range(self._place.retries + 1):
            within_s = end - time.monotonic()
            if within_s <= 0:
                raise failures.timed_out(self._place.address, self._place.timeout_s)
            try:
                return send(self._place, *arguments, within_s=within_s)
            except ServerError as error:
                pause_s = failures.pause_before_retry(error, attempt, retries=self._place.retries)
                if pause_s is None:
                    raise
            time.sleep(min(pause_s, max(0.0, end - time.monotonic())))
        raise AssertionError("the last attempt returns or raises")
