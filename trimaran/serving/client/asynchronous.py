"""The client for asyncio."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar, overload

from trimaran.core.errors import RequestFailed, ServerError
from trimaran.runtime.text import Text
from trimaran.serving.client import calls, failures, given
from trimaran.serving.client.calls import Answer, Ask, Embeddings, Model, Ranking, Tensors, TokenVectors, TokenWeights
from trimaran.serving.client.endpoint import (
    CHANNEL_ARGUMENTS,
    Protocol,
    infer_arguments,
    library,
    place_of,
    ready_versions,
    unknown_model,
)
from trimaran.serving.client.given import StringOrStrings, TextOrTexts

Result = TypeVar("Result")


class AsyncClient:
    """A connection to one Triton, for one event loop; an async context manager.

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
        concurrency: int = 8,
        retries: int = 4,
    ) -> None:
        self._place = place_of(url, protocol, timeout_s=timeout_s, concurrency=concurrency, retries=retries)
        self._triton = library(f"{protocol}.aio")
        self._tensors = library(protocol)
        self._room = asyncio.Semaphore(concurrency)
        self._models: dict[str, Model] = {}
        # Shared by all views: made at the first call, because it belongs to the event loop that runs then.
        self._opened: list[Any] = []

    def using(
        self,
        *,
        timeout_s: float | None = None,
        headers: Mapping[str, str] | None = None,
        request_id: str | None = None,
        concurrency: int | None = None,
    ) -> AsyncClient:
        """The same connection with another deadline, other headers, a request id or a concurrency of its own."""
        view = copy.copy(self)
        if concurrency is not None:
            view._room = asyncio.Semaphore(given.count("concurrency", concurrency))
        view._place = self._place.using(timeout_s, headers, request_id)
        return view

    async def embed(self, name: str, texts: TextOrTexts, *, prompt: str | None = None) -> Embeddings:
        """One row a text, in the order of the texts; one vector for one string.

        `prompt` names one of the model's prompts, such as `query`.
        """
        return await self._call(name, lambda model: calls.embed(model, texts, prompt=prompt))

    # The overloads overlap for mypy because a string is an iterable of strings; the first one is taken.
    @overload
    async def classify(  # type: ignore[overload-overlap]
        self,
        name: str,
        texts: str,
        *,
        labels: Iterable[str] | None = None,
        template: str | None = None,
        multi_label: bool | None = None,
    ) -> Ranking: ...

    @overload
    async def classify(
        self,
        name: str,
        texts: Iterable[Text],
        *,
        labels: Iterable[str] | None = None,
        template: str | None = None,
        multi_label: bool | None = None,
    ) -> list[Ranking]: ...

    async def classify(
        self,
        name: str,
        texts: TextOrTexts,
        *,
        labels: Iterable[str] | None = None,
        template: str | None = None,
        multi_label: bool | None = None,
    ) -> Any:
        """Of each text every label with its score, best first; a zero-shot model is told the labels."""
        return await self._call(
            name, lambda model: calls.classify(model, texts, labels=labels, template=template, multi_label=multi_label)
        )

    async def entities(
        self,
        name: str,
        texts: StringOrStrings,
        *,
        aggregation: str | None = None,
        ignore: Iterable[str] | None = None,
        stride: int | None = None,
    ) -> list[Any]:
        """For each text the list of its entities, with character offsets; for one string that list alone."""
        return await self._call(
            name, lambda model: calls.entities(model, texts, aggregation=aggregation, ignore=ignore, stride=stride)
        )

    async def answer(
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
        return await self._call(
            name,
            lambda model: calls.answer(model, pairs, top_k=top_k, longest=longest, stride=stride, no_answer=no_answer),
        )

    async def fill(self, name: str, texts: StringOrStrings, *, top_k: int | None = None) -> list[Any]:
        """For each text and each mask in it, the most probable tokens; for one string only its masks."""
        return await self._call(name, lambda model: calls.fill(model, texts, top_k=top_k))

    async def rerank(
        self, name: str, query: str, documents: Iterable[str], *, top_k: int | None = None
    ) -> list[tuple[int, float]]:
        """Places in `documents` with their scores, best first."""
        return await self._call(name, lambda model: calls.rerank(model, query, documents, top_k=top_k))

    @overload
    async def tokens(self, name: str, texts: str) -> TokenVectors: ...  # type: ignore[overload-overlap]

    @overload
    async def tokens(self, name: str, texts: Iterable[Text]) -> list[TokenVectors]: ...

    async def tokens(self, name: str, texts: TextOrTexts) -> Any:
        """For each text its tokens with a vector each."""
        return await self._call(name, lambda model: calls.tokens(model, texts))

    @overload
    async def sparse(  # type: ignore[overload-overlap]
        self, name: str, texts: str, *, top_k: int | None = None, prompt: str | None = None
    ) -> TokenWeights: ...

    @overload
    async def sparse(
        self, name: str, texts: Iterable[str], *, top_k: int | None = None, prompt: str | None = None
    ) -> list[TokenWeights]: ...

    async def sparse(
        self, name: str, texts: StringOrStrings, *, top_k: int | None = None, prompt: str | None = None
    ) -> Any:
        """For each text the tokens that it weighs, heaviest first. `prompt` names one of the model's prompts."""
        return await self._call(name, lambda model: calls.sparse(model, texts, top_k=top_k, prompt=prompt))

    async def query(self, name: str, texts: Any) -> Any:
        """What the model is for, asked with its defaults."""
        return await self._call(name, lambda model: calls.query(model, texts))

    async def models(self) -> tuple[str, ...]:
        """The models that are ready."""
        return tuple(await self.versions())

    async def versions(self) -> dict[str, int]:
        """The models that are ready, each with its newest version."""
        return ready_versions(await self._in_time(lambda: self._get("get_model_repository_index")))

    async def model(self, name: str) -> Model:
        """What the server says of a model; asked once."""
        return await self._in_time(lambda: self._model(name))

    def forget(self) -> None:
        """Asks again for the facts of models, which may have changed with a new version."""
        self._models.clear()

    async def close(self) -> None:
        while self._opened:
            await self._opened.pop().close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _call(self, name: str, build: Callable[[Model], Ask[Answer]]) -> Answer:
        return await self._in_time(lambda: self._answered(name, build))

    async def _answered(self, name: str, build: Callable[[Model], Ask[Answer]]) -> Answer:
        ask = build(await self._model(name))
        if len(ask.requests) <= 1:
            return ask.join([await self._infer(name, inputs, ask.outputs) for inputs in ask.requests])
        running = [asyncio.create_task(self._infer(name, inputs, ask.outputs)) for inputs in ask.requests]
        try:
            return ask.join(await asyncio.gather(*running))
        finally:
            for task in running:
                task.cancel()

    async def _in_time(self, work: Callable[[], Awaitable[Result]]) -> Result:
        try:
            async with asyncio.timeout(self._place.timeout_s):
                return await work()
        except TimeoutError as error:
            raise failures.timed_out(self._place.address, self._place.timeout_s) from error

    async def _model(self, name: str) -> Model:
        if given.string("name", name) not in self._models:
            try:
                found = await self._get("get_model_config", name)
            except RequestFailed as error:
                known = tuple(ready_versions(await self._get("get_model_repository_index")))
                if name in known:
                    raise
                raise unknown_model(self._place, name, known) from error
            self._models[name] = Model.from_config(name, found.get("config", found))
        return self._models[name]

    async def _get(self, method: str, *arguments: Any) -> Any:
        as_json = {"as_json": True} if self._place.protocol == "grpc" else {}
        headers = dict(self._place.headers) or None
        return await self._sent(lambda triton: getattr(triton, method)(*arguments, headers=headers, **as_json))

    async def _infer(self, name: str, inputs: Tensors, outputs: Sequence[str]) -> Tensors:
        arguments = infer_arguments(self._tensors, inputs, outputs)
        place = self._place
        if place.protocol == "grpc":
            arguments["client_timeout"] = place.timeout_s
        headers = dict(place.headers) or None
        async with self._room:
            result = await self._sent(
                lambda triton: triton.infer(name, request_id=place.request_id, headers=headers, **arguments)
            )
        return {output: result.as_numpy(output) for output in outputs}

    async def _sent(self, send: Callable[[Any], Awaitable[Any]]) -> Any:
        for attempt in range(self._place.retries + 1):
            try:
                return await self._translated(send)
            except ServerError as error:
                pause_s = failures.pause_before_retry(error, attempt, retries=self._place.retries)
                if pause_s is None:
                    raise
            await asyncio.sleep(pause_s)
        raise AssertionError("the last attempt returns or raises")

    async def _translated(self, send: Callable[[Any], Awaitable[Any]]) -> Any:
        from aiohttp import ClientConnectorError, ClientError
        from tritonclient.utils import InferenceServerException

        place = self._place
        try:
            return await send(self._connect())
        except InferenceServerException as error:
            status, message = str(error.status() or ""), str(error.message())
            raise failures.from_status(
                place.address, place.protocol, status, message, timeout_s=place.timeout_s
            ) from error
        except (ClientError, ConnectionError) as error:
            sent = not isinstance(error, ClientConnectorError)
            raise failures.not_ready(place.address, place.protocol, str(error), sent=sent) from error

    def _connect(self) -> Any:
        if not self._opened:
            place = self._place
            options: dict[str, Any] = {"ssl": place.secure}
            if place.protocol == "grpc":
                options["channel_args"] = CHANNEL_ARGUMENTS
            else:
                # The whole call has the deadline; a second one here would cut the longer of two views.
                options.update(conn_limit=place.concurrency, conn_timeout=None)
            self._opened.append(self._triton.InferenceServerClient(place.address, **options))
        return self._opened[0]
