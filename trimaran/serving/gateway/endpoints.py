"""What each path does, one function each: read what was asked, ask the model, say it in the caller's shape."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np

from trimaran.runtime.text import Text
from trimaran.serving.client import AsyncClient, Embeddings
from trimaran.serving.gateway import messages
from trimaran.serving.gateway.admission import Admission
from trimaran.serving.gateway.catalogue import Catalogue, Served
from trimaran.serving.gateway.refusals import Refusal, invalid, too_large
from trimaran.serving.gateway.settings import Settings
from trimaran.serving.gateway.vocabulary import parted

Answer = TypeVar("Answer")
Reply = dict[str, Any]
# Counting the tokens of more than this takes long enough to hold up others: a thread does it.
_SHORT_CHARACTERS = 8192
_UNIT = 1e-3


class Gateway(Protocol):
    settings: Settings
    client: AsyncClient
    catalogue: Catalogue
    admission: Admission


@dataclass
class Call:
    """One request on its way; what the access log and the metrics will say of it is filled in as it becomes known."""

    gateway: Gateway
    request_id: str
    deadline: float
    headers: dict[str, str] = field(default_factory=dict)
    caller: str = ""
    model: str = ""
    texts: int = 0
    tokens: int = 0
    cut: int = 0
    queue_s: float = 0.0
    was_read: bool = False

    @property
    def usage(self) -> dict[str, int]:
        return {"prompt_tokens": self.tokens, "total_tokens": self.tokens}

    async def pick(self, name: str | None, *tasks: str) -> Served:
        served = await self.gateway.catalogue.pick(name, tasks)
        self.model = served.name
        return served

    async def weigh(
        self, served: Served, texts: Sequence[Text], *, whole: bool = False, times: int = 1, prompt: str | None = None
    ) -> None:
        """Holds the texts to the limits, with the prompt that stands before them. Raises Refusal (413)."""
        self.require_few(len(texts) * times)
        limits = self.gateway.settings.limits
        sizes = [len(part) for text in texts for part in ((text,) if isinstance(text, str) else text)]
        if max(sizes) > limits.characters:
            raise too_large("The characters of a text", max(sizes), limits.characters)
        if sum(sizes) > _SHORT_CHARACTERS:
            counted = await asyncio.to_thread(served.vocabulary.counted, texts, whole=whole, prompt=prompt)
        else:
            counted = served.vocabulary.counted(texts, whole=whole, prompt=prompt)
        self.tokens, self.cut = counted.tokens * times, counted.cut
        if self.tokens > limits.tokens:
            raise too_large("The tokens of the request", self.tokens, limits.tokens)

    def require_few(self, texts: int) -> None:
        limit = self.gateway.settings.limits.texts
        if texts > limit:
            raise too_large("The texts of the request", texts, limit)
        self.texts = texts

    async def ask(self, served: Served, question: Callable[[AsyncClient], Awaitable[Answer]]) -> Answer:
        """Asks when there is room. A large request is sent in parts, as many at a time as its share of room holds."""
        async with self.gateway.admission.room(self.texts) as self.queue_s:
            client = self.gateway.client.using(
                timeout_s=max(0.001, self.deadline - time.monotonic()),
                headers=self.headers,
                request_id=self.request_id,
                concurrency=max(1, self.gateway.settings.in_flight // served.batch),
            )
            answer = await question(client)
        self.gateway.catalogue.heard(served.name)
        return answer


async def embeddings(call: Call, body: messages.EmbeddingsRequest) -> Reply:
    served = await call.pick(body.model, "embedding")
    prompt = known_prompt(served, body.prompt_name)
    texts = await _embedding_texts(call, served, body.input)
    await call.weigh(served, texts, prompt=prompt)
    vectors = await call.ask(served, lambda client: client.embed(served.name, texts, prompt=prompt))
    if body.dimensions is not None:
        vectors = _shortened(vectors, body.dimensions)
    encode = _base64 if body.encoding_format == "base64" else np.ndarray.tolist
    return {
        "object": "list",
        "data": [{"object": "embedding", "index": i, "embedding": encode(row)} for i, row in enumerate(vectors)],
        "model": served.name,
        "usage": call.usage,
    }


async def models(call: Call, body: None) -> Reply:
    return {
        "object": "list",
        "data": [
            {
                "id": served.name,
                "object": "model",
                "created": served.created,
                "owned_by": "trimaran",
                "task": served.task,
            }
            for served in call.gateway.catalogue.models
        ],
    }


async def rerank(call: Call, body: messages.RerankRequest) -> Reply:
    served = await call.pick(body.model, "rerank")
    await call.weigh(served, [(body.query, document) for document in body.documents])
    ranked = await call.ask(
        served, lambda client: client.rerank(served.name, body.query, body.documents, top_k=body.top_n)
    )
    results: list[Reply] = [{"index": index, "relevance_score": score} for index, score in ranked]
    if body.return_documents:
        for result in results:
            result["document"] = body.documents[result["index"]]
    return {"model": served.name, "results": results, "usage": call.usage}


async def classify(call: Call, body: messages.ClassifyRequest) -> Reply:
    served = await call.pick(body.model, "text-classification", "zero-shot-classification")
    zero_shot = served.task == "zero-shot-classification"
    if zero_shot and not body.labels:
        raise invalid("This model wants to be told the labels.", param="labels")
    texts = _pairs(_list(body.inputs))
    await call.weigh(served, texts, times=len(body.labels or ()) if zero_shot else 1)
    rankings = await call.ask(
        served,
        lambda client: client.classify(
            served.name, texts, labels=body.labels, template=body.template, multi_label=body.multi_label
        ),
    )
    results = [[{"label": label, "score": score} for label, score in ranking[: body.top_k]] for ranking in rankings]
    return {"model": served.name, "results": results, "usage": call.usage}


async def entities(call: Call, body: messages.EntitiesRequest) -> Reply:
    served = await call.pick(body.model, "token-classification")
    texts = _list(body.inputs)
    await call.weigh(served, texts, whole=body.stride is not None)
    results = await call.ask(
        served, lambda client: client.entities(served.name, texts, aggregation=body.aggregation, stride=body.stride)
    )
    return {"model": served.name, "results": results, "usage": call.usage}


async def answer(call: Call, body: messages.AnswerRequest) -> Reply:
    served = await call.pick(body.model, "question-answering")
    pairs = [(body.question, body.context)]
    await call.weigh(served, pairs, whole=True)
    results = await call.ask(
        served,
        lambda client: client.answer(
            served.name, pairs, top_k=body.top_k, longest=body.longest, no_answer=body.no_answer
        ),
    )
    return {"model": served.name, "answers": results[0], "usage": call.usage}


async def fill(call: Call, body: messages.FillRequest) -> Reply:
    served = await call.pick(body.model, "fill-mask")
    texts = _list(body.inputs)
    await call.weigh(served, texts)
    results = await call.ask(served, lambda client: client.fill(served.name, texts, top_k=body.top_k))
    return {"model": served.name, "results": results, "usage": call.usage}


async def encode(call: Call, body: messages.EncodeRequest) -> Reply:
    served = await call.pick(None, "embedding")
    call.require_few(len(body.texts))
    if any(isinstance(text, str) == body.is_tokenized for text in body.texts):
        raise invalid("With is_tokenized every text is a list of tokens, without it a string.", param="texts")
    texts = [parted(text if isinstance(text, str) else served.vocabulary.text_of_tokens(text)) for text in body.texts]
    prompt = known_prompt(served, body.prompt_name)
    await call.weigh(served, texts, prompt=prompt)
    vectors = await call.ask(served, lambda client: client.embed(served.name, texts, prompt=prompt))
    return {"id": body.id, "result": vectors.tolist(), "status": 200}


async def healthy(call: Call, body: None) -> Reply:
    return {"status": "ok"}


async def ready(call: Call, body: None) -> Reply:
    if not call.gateway.catalogue.ready:
        raise Refusal(503, "not_ready", "Not every model answers.", retry_after_s=2.0)
    return {"status": "ready"}


async def _embedding_texts(call: Call, served: Served, given: Any) -> list[str]:
    if isinstance(given, str):
        return [given]
    if isinstance(given[0], int):
        given = [given]
    call.require_few(len(given))
    if isinstance(given[0], str):
        return list(given)
    longest, limit = max(len(ids) for ids in given), served.vocabulary.longest
    if longest > limit:
        raise too_large("The token ids of an input", longest, limit, param="input")
    # Each is decoded and encoded again to be sure: a full batch of them would hold up others.
    return await asyncio.to_thread(lambda: [served.vocabulary.text_of_ids(ids, i) for i, ids in enumerate(given)])


def known_prompt(served: Served, name: str | None) -> str | None:
    """The prompt's name, if it is one of the model's or None. Raises Refusal (400) with the names that there are."""
    known = served.vocabulary.prompts
    if name is not None and name not in known:
        said = f"Known: {', '.join(known)}." if known else "It has no prompts."
        raise Refusal(400, "unknown_prompt", f"This model has no prompt {name!r}. {said}", param="prompt_name")
    return name


def _shortened(vectors: Embeddings, width: int) -> Embeddings:
    """The first numbers of each vector; those of unit length are brought back to it."""
    if width > vectors.shape[1]:
        raise invalid(f"The model's vectors have {vectors.shape[1]} numbers.", param="dimensions")
    cut = vectors[:, :width]
    lengths = np.linalg.norm(cut, axis=1, keepdims=True)
    if np.all(np.abs(np.linalg.norm(vectors, axis=1) - 1) < _UNIT) and np.all(lengths > 0):
        cut = cut / lengths
    return np.asarray(cut, np.float32)


def _base64(row: Embeddings) -> str:
    return base64.b64encode(row.astype("<f4", copy=False).tobytes()).decode("ascii")


def _list(inputs: Any) -> list[Any]:
    return [inputs] if isinstance(inputs, str) else list(inputs)


def _pairs(inputs: list[Any]) -> list[Text]:
    return [item if isinstance(item, str) else (item[0], item[1]) for item in inputs]
