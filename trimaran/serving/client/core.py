"""What both clients do, without any input or output of its own: plan requests, send again, keep deadlines, join.

Everything is written once, as coroutines. They wait only through a `ClientDriver`. The driver of `AsyncClient` awaits
on the event loop. That of `Client` blocks its thread instead, so that its coroutines never suspend and `run` gets their
result at once.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self, Unpack, overload

from trimaran.core.choices import Overflow
from trimaran.core.errors import NotReady, RequestFailed
from trimaran.core.small_vectors import RANGES, VectorPrecision, small
from trimaran.runtime.text import Text
from trimaran.runtime.wire import READ_COUNT, TRUNCATED
from trimaran.serving.client import calls, failures, given, late_interaction
from trimaran.serving.client.calls import ClassifyOptions, HybridOptions
from trimaran.serving.client.driver import ClientDriver, TruncatedTexts, total
from trimaran.serving.client.endpoint import Endpoint, answering_version, ready_versions, unknown_model
from trimaran.serving.client.given import StringOrStrings, TextOrTexts
from trimaran.serving.client.question import Answer, Ask, Model, NamedTensors
from trimaran.serving.client.replicas import Lease, Release, Replica, VersionChanged
from trimaran.serving.client.results import Embeddings, Ranking, TokenVectors, TokenWeights
from trimaran.serving.client.whole import embed_whole

if TYPE_CHECKING:
    from trimaran.serving.client.watching import Watch

_ATTEMPTS_AT_ONE_VERSION = 3


class _Part(NamedTuple):
    """The answer to one request of a call."""

    # The version of the model that answered.
    version: str
    tensors: NamedTensors


class ClientCore:
    def __init__(self, endpoint: Endpoint, channel: Any, driver: ClientDriver, watch: Watch | None = None) -> None:
        """`channel` leads to one server. With a `watch` there are several, and each has a channel of its own."""
        self._endpoint, self._channel = endpoint, channel
        self._driver = driver
        self._watch = watch
        self._models: dict[str, Model] = {}
        # Of the latest answer of this view: the version that gave it, and what the model counted (-1: it does not).
        self.answered_by, self.tokens_read, self.texts_cut = "", -1, -1
        # What the model is asked to count.
        self._counts: tuple[str, ...] = (TRUNCATED,)
        # Shared with the views that `using` makes.
        self._truncated = TruncatedTexts()

    @property
    def truncated_texts(self) -> int:
        """How many texts were cut since this client was made, because they were longer than a model reads."""
        return self._truncated.count

    @property
    def replicas(self) -> tuple[Replica, ...]:
        """The servers behind this client, as they were last seen; none if it was given one address as a string."""
        return self._watch.replicas.members if self._watch else ()

    def release_in_use(self, name: str) -> Release | None:
        """The version of a model that answers, of those that the servers have."""
        return self._watch.replicas.in_use(name) if self._watch else None

    def using(
        self, *, timeout_s: float | None = None, headers: Mapping[str, str] | None = None, request_id: str | None = None
    ) -> Self:
        """The same connection with another deadline, other headers or a request id."""
        view = copy.copy(self)
        view._endpoint = self._endpoint.using(timeout_s, headers, request_id)
        return view

    async def embed(
        self,
        name: str,
        texts: TextOrTexts,
        *,
        prompt: str | None = None,
        dimensions: int | None = None,
        precision: VectorPrecision = "float32",
        overflow: Overflow = "cut",
    ) -> Embeddings:
        """One row for each text, in the order of the texts; one vector for one string.

        `prompt` names one of the model's prompts, such as `query`. `dimensions` keeps the first numbers of each vector
        and scales unit vectors back to unit length. `precision` is float32, int8, uint8, or eight dimensions in a byte
        (binary, ubinary). A text that is longer than the model reads is cut, or with `overflow="windows"` it is the
        mean over pieces that are read whole (`"windows-max"`: the maximum).
        """
        if overflow != "cut":
            vectors = await embed_whole(self, name, texts, prompt=prompt, overflow=overflow)
            model = await self.model(name)
            shortened = small(
                vectors, dimensions=dimensions, precision=precision, ranges=model.parameters.get(RANGES, "")
            )
            return shortened[0] if isinstance(texts, str) else shortened
        small_ones: dict[str, Any] = {"dimensions": dimensions, "precision": precision}
        return await self.ask(name, lambda model: calls.embed(model, texts, prompt=prompt, **small_ones))

    # The overloads overlap for mypy because a string is an iterable of strings; the first one is taken.
    @overload
    async def classify(  # type: ignore[overload-overlap]
        self, name: str, texts: str, **options: Unpack[ClassifyOptions]
    ) -> Ranking: ...

    @overload
    async def classify(self, name: str, texts: Iterable[Text], **options: Unpack[ClassifyOptions]) -> list[Ranking]: ...

    async def classify(self, name: str, texts: TextOrTexts, **options: Unpack[ClassifyOptions]) -> Any:
        """For each text all labels with their scores, best first. A zero-shot model needs `labels` to choose from.

        A fill-mask model needs `label_words`: words for each label, scored at the mask. A `template` such as
        `"{} It is about {mask}."` puts the mask beside each text.
        """
        return await self.ask(name, lambda model: calls.classify(model, texts, **options))

    async def entities(
        self,
        name: str,
        texts: StringOrStrings,
        *,
        aggregation: str | None = None,
        ignore: Iterable[str] | None = None,
        stride: int | None = None,
    ) -> list[Any]:
        """For each text a list of its entities with character offsets; for one string one such list."""
        return await self.ask(
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
        """For each (question, context) a list of the best spans of the context; for one pair one such list."""
        return await self.ask(
            name,
            lambda model: calls.answer(model, pairs, top_k=top_k, longest=longest, stride=stride, no_answer=no_answer),
        )

    async def fill(
        self,
        name: str,
        texts: StringOrStrings,
        *,
        top_k: int | None = None,
        targets: Iterable[str] | None = None,
        template: str | None = None,
    ) -> list[Any]:
        """For each text, and for each mask in it, the most probable tokens; for one string only for its masks.

        With `targets`, the most probable of these words. A `template` with `{}` and `{mask}` puts the mask beside each
        text.
        """
        return await self.ask(
            name, lambda model: calls.fill(model, texts, top_k=top_k, targets=targets, template=template)
        )

    async def rerank(
        self,
        name: str,
        query: str,
        documents: Iterable[str],
        *,
        top_k: int | None = None,
        prompt: str | None = None,
        instruction: str | None = None,
    ) -> list[tuple[int, float]]:
        """Indices into `documents` with their scores, best first.

        `prompt` names one of the model's prompts, `instruction` takes their place with words of your own.
        """
        options: dict[str, Any] = {"top_k": top_k, "prompt": prompt, "instruction": instruction}
        return await self.ask(name, lambda model: calls.rerank(model, query, documents, **options))

    async def choose(self, name: str, text: str, choices: Iterable[str]) -> list[tuple[int, float]]:
        """Indices into `choices` with their probabilities, best first."""
        return await self.ask(name, lambda model: calls.choose(model, text, choices))

    async def follows(self, name: str, pairs: tuple[str, str] | Iterable[tuple[str, str]]) -> Any:
        """For each (first, second) the probability that the second text follows; for one pair one number."""
        return await self.ask(name, lambda model: calls.follows(model, pairs))

    @overload
    async def tokens(  # type: ignore[overload-overlap]
        self, name: str, texts: str, *, prompt: str | None = None
    ) -> TokenVectors: ...

    @overload
    async def tokens(self, name: str, texts: Iterable[Text], *, prompt: str | None = None) -> list[TokenVectors]: ...

    async def tokens(self, name: str, texts: TextOrTexts, *, prompt: str | None = None) -> Any:
        """For each text its tokens, with a vector for each token.

        A late-interaction model reads texts as documents, or with `prompt="query"` as queries.
        """
        return await self.ask(name, lambda model: calls.tokens(model, texts, prompt=prompt))

    async def score(self, name: str, query: str, documents: Iterable[str]) -> list[float]:
        """The score of each document by late interaction: the best cosine of each token of the query, added up.

        A late-interaction model scores as `MultiVectorEncoder.similarity` of sentence-transformers does.
        """
        return (await self.ask(name, lambda model: late_interaction.vectors(model, query, documents))).scores()

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
        """For each text its weighted tokens, heaviest first. `prompt` names one of the model's prompts."""
        return await self.ask(name, lambda model: calls.sparse(model, texts, top_k=top_k, prompt=prompt))

    async def hybrid(self, name: str, texts: StringOrStrings, **options: Unpack[HybridOptions]) -> Any:
        """For each text `HybridVectors` of one pass: its vector, its weighted tokens, and a vector for each token.

        `outputs` names what is wanted: some of "dense", "sparse" and "colbert".
        """
        return await self.ask(name, lambda model: calls.hybrid(model, texts, **options))

    async def query(self, name: str, texts: Any) -> Any:
        """The question that the model is made for, with its defaults."""
        return await self.ask(name, lambda model: calls.query(model, texts))

    async def ask(self, name: str, build: Callable[[Model], Ask[Answer]]) -> Answer:
        """Requests of your own, with this client's deadline, retries and concurrency."""
        deadline = self._deadline()
        model = await self._described(name, deadline)
        ask = build(model)
        # Models that were laid out before do not count.
        outputs = (*ask.outputs, *(count for count in self._counts if count in model.outputs))
        # A promotion may come between the requests of a call, whose parts are then of two versions.
        for _ in range(_ATTEMPTS_AT_ONE_VERSION):
            release = self.release_in_use(name)
            infer = functools.partial(self._infer, name, ask.keep, outputs, deadline, release)
            work = [functools.partial(infer, inputs) for inputs in ask.requests]
            try:
                # A single request starts no thread or task: that would be most of a fast model's latency.
                if len(work) <= 1:
                    return self._joined(name, ask, [await begin() for begin in work])
                parts = await self._driver.together(work, within_s=max(0.0, deadline - time.monotonic()))
            except TimeoutError as error:
                raise self._timed_out() from error
            except VersionChanged:
                continue
            if len({part.version for part in parts}) == 1:
                return self._joined(name, ask, parts)
        raise NotReady(
            f"{name} changed its version {_ATTEMPTS_AT_ONE_VERSION} times during one call.",
            hint="Send again when the promotions are done.",
            model=name,
        )

    def _joined(self, name: str, ask: Ask[Answer], parts: Sequence[_Part]) -> Answer:
        tensors = [part.tensors for part in parts]
        self.answered_by = parts[0].version if parts else self.answered_by
        self.tokens_read, self.texts_cut = (total(tensors, count) for count in (READ_COUNT, TRUNCATED))
        if ask.counts_cuts and self.texts_cut > 0:
            self._truncated.note(name, self.texts_cut)
        return ask.join(tensors)

    async def models(self) -> tuple[str, ...]:
        """The models that are ready."""
        return tuple(await self.versions())

    async def versions(self) -> dict[str, int]:
        """The models that are ready, each with its newest version."""
        return await self._ready(self._deadline())

    async def _close_channels(self) -> None:
        if self._watch is not None:
            await self._watch.close()
            return
        if (closing := self._channel.close()) is not None:
            await closing

    async def model(self, name: str) -> Model:
        """What the server says about a model. It is asked once."""
        return await self._described(name, self._deadline())

    def forget(self) -> None:
        """Ask again about models, which may have changed with a new version."""
        self._models.clear()

    async def _described(self, name: str, deadline: float) -> Model:
        if given.string("name", name) not in self._models:
            try:
                config = await self._config(name, deadline)
            except RequestFailed as error:
                known = tuple(await self._ready(deadline))
                if name in known:
                    raise
                raise unknown_model(self._endpoint, name, known) from error
            # gRPC wraps the configuration once more.
            self._models[name] = Model.from_config(name, config.get("config", config))
            if self._watch is not None:
                self._watch.models.add(name)
        return self._models[name]

    async def _config(self, name: str, deadline: float) -> Any:
        while True:
            if self._watch is not None:
                await self._look(self._watch)
            # Another release may be in use when the answer comes.
            with contextlib.suppress(VersionChanged):
                return await self._sent(deadline, "config", name, model=name, release=self.release_in_use(name))

    async def _ready(self, deadline: float) -> dict[str, int]:
        if self._watch is None:
            return ready_versions(await self._sent(deadline, "statistics"))
        await self._look(self._watch)
        if not self._watch.replicas.answering:
            raise failures.not_ready(self._endpoint.address, self._endpoint.protocol, "no server answers", sent=False)
        return {name: release.version for name, release in self._watch.replicas.models_in_use().items()}

    async def _look(self, watch: Watch) -> None:
        """Before the first call; afterwards the servers are watched all the time."""
        if not watch.has_begun:
            await watch.look()
            if not watch.has_begun:
                watch.has_begun = True
                self._start_watching(watch)
        else:
            await watch.look_if_old()

    def _start_watching(self, watch: Watch) -> None:
        raise NotImplementedError

    async def _infer(
        self,
        name: str,
        keep: Callable[[NamedTensors], NamedTensors],
        outputs: Sequence[str],
        deadline: float,
        release: Release | None,
        inputs: NamedTensors,
    ) -> _Part:
        result = await self._sent(deadline, "infer", name, inputs, outputs, model=name, release=release)
        return _Part(answering_version(result), keep({output: result.as_numpy(output) for output in outputs}))

    async def _sent(
        self, deadline: float, method: str, *arguments: Any, model: str = "", release: Release | None = None
    ) -> Any:
        """Send a request. If it fails, send it to another server, or again if it was surely never sent.

        `deadline` is a moment of time.monotonic().
        """
        # Of several servers, those that failed in this round.
        tried: list[Replica] = []
        attempt = 0
        while True:
            if (within_s := deadline - time.monotonic()) <= 0:
                raise self._timed_out()
            lease = Lease(self._watch.replicas, model, release, tried) if self._watch else None
            sender = functools.partial(lease.send, method) if lease else getattr(self._channel, method)
            try:
                send = functools.partial(sender, self._endpoint, *arguments, within_s=within_s)
                return await self._driver.result(send, within_s=within_s)
            except Exception as error:
                failure = failures.from_exception(lease.endpoint or self._endpoint if lease else self._endpoint, error)
                if failure is None:
                    raise
                if lease and lease.may_repeat(failure):
                    continue
                failure = lease.for_the_caller(failure) if lease else failure
                pause_s = failures.pause_before_retry(failure, attempt, retries=self._endpoint.retries)
                if pause_s is None and failure is error:
                    raise
                if pause_s is None:
                    raise failure from error
            finally:
                if lease:
                    lease.end()
            attempt += 1
            tried.clear()
            await self._driver.pause(min(pause_s, max(0.0, deadline - time.monotonic())))

    def _deadline(self) -> float:
        return time.monotonic() + self._endpoint.timeout_s

    def _timed_out(self) -> Exception:
        return failures.timed_out(self._endpoint.address, self._endpoint.timeout_s)
