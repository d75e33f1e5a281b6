"""The paths of the gateway: what each takes, what it gives, and the function that answers it."""

from __future__ import annotations

import base64
import functools
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import BaseModel

from trimaran.core.choices import FILLINGS_A_MASK, Overflow
from trimaran.core.errors import UsageError
from trimaran.core.model_config import UNPROVEN
from trimaran.core.small_vectors import VectorPrecision
from trimaran.core.tasks import TASKS
from trimaran.runtime.label_words import MASK_MARK
from trimaran.runtime.tasks.fill_mask import WORDS_A_MASK
from trimaran.runtime.tasks.hybrid_embedding import COLBERT
from trimaran.runtime.text import Text
from trimaran.serving.client import Embeddings, HybridVectors, late_interaction
from trimaran.serving.gateway import compatible_messages, messages
from trimaran.serving.gateway.call import Call, Reply
from trimaran.serving.gateway.catalogue import ServedModel
from trimaran.serving.gateway.refusals import Refusal, invalid, not_ready, too_large
from trimaran.serving.gateway.vocabulary import split_pair

# The answers of other servers are lists.
Handler = Callable[[Call, Any], Coroutine[Any, Any, Any]]


@dataclass(frozen=True)
class GatewayRoute:
    path: str
    # The schema of the body; None makes it a GET.
    request: type[messages.RequestBody] | None
    response: type[BaseModel]
    # An open path needs no key. It must not say anything that a key protects.
    is_open: bool
    # Its docstring is the summary in the OpenAPI description.
    handle: Handler
    # The tasks of the models that answer it; none for a path that asks no model.
    tasks: tuple[str, ...] = ()

    @property
    def method(self) -> str:
        return "POST" if self.request else "GET"


ROUTES: dict[str, GatewayRoute] = {}
# In memory, and as digits with a comma.
_FLOAT_BYTES, _WRITTEN_FLOAT_BYTES = 4, 12
# They take some milliseconds; more would delay other requests, so a thread computes them.
_FEW_PRODUCTS = 1 << 24
# Of all labels of a request together: they are sent with every text.
_MOST_LABEL_WORDS = 1024
# Models that give one vector a text.
EMBEDDERS = tuple(row.name for row in TASKS.values() if row.pools)


def route(
    path: str,
    request: type[messages.RequestBody] | None,
    response: type[BaseModel],
    *,
    is_open: bool = False,
    tasks: tuple[str, ...] = (),
) -> Callable[[Handler], Handler]:
    def register(handle: Handler) -> Handler:
        ROUTES[path] = GatewayRoute(path, request, response, is_open, handle, tasks)
        return handle

    return register


def route_of_task(task: str) -> GatewayRoute | None:
    """The first path that answers models of this task; None for a task that only Triton's clients can ask.

    A path for all tasks tells something of a model and asks it nothing.
    """
    return next((route for route in ROUTES.values() if task in route.tasks and len(route.tasks) < len(TASKS)), None)


@route("/v1/embeddings", messages.EmbeddingsRequest, messages.EmbeddingsResponse, tasks=EMBEDDERS)
async def embeddings(call: Call, body: messages.EmbeddingsRequest) -> Reply:
    """Vectors of texts, as in OpenAI's API."""
    served = await call.pick(body.model)
    prompt = known_prompt(served, body.prompt_name)
    texts = await embedding_texts(call, served, body.input)
    precision: VectorPrecision = "float32" if body.output_dtype == "float" else body.output_dtype
    vectors = await embedded(
        call, served, texts, prompt, dimensions=body.dimensions, precision=precision, overflow=body.overflow
    )
    rows = map(_base64, vectors) if body.encoding_format == "base64" else vectors
    data = [{"object": "embedding", "index": i, "embedding": row} for i, row in enumerate(rows)]
    return {"object": "list", "data": data, **call.reply()}


@route("/v1/models", None, messages.ModelsResponse)
async def models(call: Call, body: None) -> Reply:
    """The models that are served."""
    data = [
        {
            "id": served.name,
            "object": "model",
            "created": served.created,
            "owned_by": "trimaran",
            "task": served.task,
            **({"proof": UNPROVEN} if served.unproven else {}),
        }
        for served in call.gateway.catalogue.models
    ]
    return {"object": "list", "data": data}


@route("/rerank", messages.RerankRequest, compatible_messages.AnyRerankResponse, tasks=("rerank",))
async def rerank(call: Call, body: messages.RerankRequest) -> Reply | list[Reply]:
    """Documents, ranked by how well they fit a query. With `texts` in the place of `documents`, as in TEI."""
    if (body.documents is None) == (body.texts is None):
        raise invalid("Either `documents` or `texts` holds what is ranked.", param="documents")
    compatible_routes.refuse_raw_scores(body.raw_scores)
    served = await call.pick(body.model)
    documents = body.documents or body.texts or []
    query = (body.instruction or "") + body.query
    ranking = await call.ask(
        served,
        [(query, document) for document in documents],
        lambda client: client.rerank(
            served.name, body.query, documents, top_k=body.top_n, instruction=body.instruction
        ),
    )
    if body.texts is not None:
        return [
            {"index": index, "score": score, **({"text": documents[index]} if body.return_text else {})}
            for index, score in ranking
        ]
    results: list[Reply] = [{"index": index, "relevance_score": score} for index, score in ranking]
    if body.return_documents:
        for result in results:
            result["document"] = documents[result["index"]]
    return call.reply(results=results)


@route("/choose", messages.ChooseRequest, messages.ChooseResponse, tasks=("multiple-choice",))
async def choose(call: Call, body: messages.ChooseRequest) -> Reply:
    """Choices for a text with their probabilities, best first."""
    served = await call.pick(body.model)
    ranking = await call.ask(
        served,
        [(body.text, choice) for choice in body.choices],
        lambda client: client.choose(served.name, body.text, body.choices),
    )
    return call.reply(results=[{"index": index, "score": score} for index, score in ranking])


@route("/follows", messages.FollowsRequest, messages.FollowsResponse, tasks=("next-sentence",))
async def follows(call: Call, body: messages.FollowsRequest) -> Reply:
    """The probability that a second text follows a first one."""
    served = await call.pick(body.model)
    pairs = [(first, second) for first, second in body.pairs]
    return call.reply(results=await call.ask(served, pairs, lambda client: client.follows(served.name, pairs)))


@route("/score", messages.ScoreRequest, messages.ScoreResponse, tasks=("feature-extraction", "hybrid-embedding"))
async def score(call: Call, body: messages.ScoreRequest) -> Reply:
    """Scores of documents for a query by late interaction: the best cosine of each token of the query, added up."""
    served = await call.pick(body.model)
    texts = [body.query, *body.documents]
    read = functools.partial(late_interaction.vectors, query=body.query, documents=body.documents)
    vectors = await call.ask(
        served,
        texts,
        lambda client: client.ask(served.name, read),
        bytes_a_token=_FLOAT_BYTES * served.token_width,
    )
    is_small = vectors.products <= _FEW_PRODUCTS
    return call.reply(results=vectors.scores() if is_small else await call.in_thread(vectors.scores, has_begun=True))


@route("/hybrid", messages.HybridRequest, messages.HybridResponse, tasks=("hybrid-embedding",))
async def hybrid(call: Call, body: messages.HybridRequest) -> Reply:
    """A vector, weighted tokens and a vector for each token, of one pass over each text."""
    served = await call.pick(body.model)
    prompt = known_prompt(served, body.prompt_name)
    texts = listed(body.inputs)
    rows = await call.ask(
        served,
        texts,
        lambda client: client.hybrid(served.name, texts, outputs=body.outputs, top_k=body.top_k, prompt=prompt),
        prompt=prompt,
        bytes_a_token=_WRITTEN_FLOAT_BYTES * served.token_width
        if body.outputs is None or COLBERT in body.outputs
        else 0,
    )
    return call.reply(results=[_hybrid_result(row) for row in rows])


@route(
    "/classify",
    messages.ClassifyRequest,
    messages.ClassifyResponse,
    tasks=("text-classification", "zero-shot-classification"),
)
async def classify(call: Call, body: messages.ClassifyRequest) -> Reply:
    """Labels with scores, best first; with `label_words`, of a fill-mask model."""
    if body.label_words:
        call.tasks = ("fill-mask",)
    served = await call.pick(body.model)
    zero_shot = served.task == "zero-shot-classification"
    if sum(map(len, (body.label_words or {}).values())) > _MOST_LABEL_WORDS:
        raise invalid(f"At most {_MOST_LABEL_WORDS} words are possible.", param="label_words")
    if zero_shot and not body.labels:
        raise invalid("This model needs the labels to choose from.", param="labels")
    texts: list[Text] = [item if isinstance(item, str) else (item[0], item[1]) for item in listed(body.inputs)]
    rankings = await call.ask(
        served,
        texts,
        lambda client: client.classify(
            served.name,
            texts,
            labels=body.labels,
            template=body.template,
            multi_label=body.multi_label,
            label_words=body.label_words,
        ),
        times=len(body.labels or ()) if zero_shot else 1,
        beside=_characters(body.template, body.labels, *(body.label_words or {}).items()),
    )
    return call.reply(
        results=[[{"label": label, "score": score} for label, score in ranking[: body.top_k]] for ranking in rankings]
    )


@route("/entities", messages.EntitiesRequest, messages.EntitiesResponse, tasks=("token-classification",))
async def entities(call: Call, body: messages.EntitiesRequest) -> Reply:
    """Names in texts, with character offsets."""
    served = await call.pick(body.model)
    texts = listed(body.inputs)
    results = await call.ask(
        served,
        texts,
        lambda client: client.entities(served.name, texts, aggregation=body.aggregation, stride=body.stride),
        whole=body.stride is not None,
    )
    return call.reply(results=results)


@route("/answer", messages.AnswerRequest, messages.AnswerResponse, tasks=("question-answering",))
async def answer(call: Call, body: messages.AnswerRequest) -> Reply:
    """The part of a context that answers a question."""
    served = await call.pick(body.model)
    pairs = [(body.question, body.context)]
    results = await call.ask(
        served,
        pairs,
        lambda client: client.answer(
            served.name, pairs, top_k=body.top_k, longest=body.longest, no_answer=body.no_answer
        ),
        whole=True,
    )
    return call.reply(answers=results[0])


@route("/fill", messages.FillRequest, messages.FillResponse, tasks=("fill-mask",))
async def fill(call: Call, body: messages.FillRequest) -> Reply:
    """The most probable words for each mask."""
    served = await call.pick(body.model)
    texts = listed(body.inputs)
    template, masks = body.template or "", served.vocabulary.masks
    in_template = masks(template) + template.count(MASK_MARK)
    # Each word for a mask comes with the whole text.
    places = sum((masks(text) + in_template) * (len(text) + len(template)) for text in texts)
    words = FILLINGS_A_MASK if body.targets is None else len(body.targets)
    call.check_answer(places * min(body.top_k or WORDS_A_MASK, words))
    options: dict[str, Any] = {"top_k": body.top_k, "targets": body.targets, "template": body.template}
    results = await call.ask(
        served,
        texts,
        lambda client: client.fill(served.name, texts, **options),
        beside=_characters(body.template, body.targets),
    )
    return call.reply(results=results)


@route("/encode", messages.EncodeRequest, messages.EncodeResponse, tasks=EMBEDDERS)
async def encode(call: Call, body: messages.EncodeRequest) -> Reply:
    """Vectors of texts, as in bert-as-service."""
    served = await call.pick(None)
    call.check_count(len(body.texts))
    if any(isinstance(text, str) == body.is_tokenized for text in body.texts):
        raise invalid("With is_tokenized every text is a list of tokens, without it a string.", param="texts")
    texts = [
        split_pair(text if isinstance(text, str) else served.vocabulary.text_of_tokens(text)) for text in body.texts
    ]
    prompt = known_prompt(served, body.prompt_name)
    vectors = await call.ask(
        served,
        texts,
        lambda client: client.embed(served.name, texts, prompt=prompt),
        prompt=prompt,
        model_counts=True,
    )
    return {"id": body.id, "result": vectors, "status": 200}


@route("/healthz", None, messages.StatusResponse, is_open=True)
async def healthy(call: Call, body: None) -> Reply:
    """Whether the gateway runs."""
    return {"status": "ok"}


@route("/readyz", None, messages.StatusResponse, is_open=True)
async def ready(call: Call, body: None) -> Reply:
    """Whether every model answered its last canary."""
    if not call.gateway.catalogue.ready:
        raise not_ready("Not every model answers.")
    return {"status": "ready"}


async def embedding_texts(call: Call, served: ServedModel, inputs: Any) -> list[str]:
    """The texts of OpenAI's `input`: one text, several, the token ids of one text, or those of several."""
    if isinstance(inputs, str):
        return [inputs]
    if isinstance(inputs[0], int):
        inputs = [inputs]
    call.check_count(len(inputs))
    if isinstance(inputs[0], str):
        return list(inputs)
    sizes, limits = [len(ids) for ids in inputs], call.gateway.settings.limits
    if max(sizes) > served.vocabulary.longest:
        raise too_large("The token ids of an input", max(sizes), served.vocabulary.longest, param="input")
    if sum(sizes) > limits.tokens:
        raise too_large("The tokens of the request", sum(sizes), limits.tokens, param="input")
    # Each is decoded and encoded again to be sure. A full batch of them takes seconds.
    return await call.in_thread(functools.partial(served.vocabulary.texts_of_ids, inputs))


def known_prompt(served: ServedModel, name: str | None) -> str | None:
    """The name of the prompt. Raises Refusal (400) if the model has no such prompt."""
    known = served.vocabulary.prompts
    if name is not None and name not in known:
        choice = f"Known: {', '.join(known)}." if known else "It has no prompts."
        raise Refusal(400, "unknown_prompt", f"This model has no prompt {name!r}. {choice}", param="prompt_name")
    return name


async def embedded(
    call: Call,
    served: ServedModel,
    texts: list[str],
    prompt: str | None,
    *,
    dimensions: int | None,
    precision: VectorPrecision = "float32",
    overflow: Overflow = "cut",
) -> Embeddings:
    """Vectors as a caller asked for them. Raises Refusal (422) if the model cannot give them so."""
    options: dict[str, Any] = {"dimensions": dimensions, "precision": precision, "overflow": overflow}
    try:
        vectors = await call.ask(
            served,
            texts,
            lambda client: client.embed(served.name, texts, prompt=prompt, **options),
            whole=overflow != "cut",
            prompt=prompt,
            model_counts=overflow == "cut",
        )
    except UsageError as error:
        raise invalid(error.message, param="output_dtype" if dimensions is None else "dimensions") from error
    return vectors


def _hybrid_result(row: HybridVectors) -> Reply:
    result: Reply = {}
    if row.dense is not None:
        result["dense"] = row.dense
    if row.sparse is not None:
        entries = zip(row.sparse.ids, row.sparse.tokens, row.sparse.weights, strict=True)
        result["sparse"] = [
            {"token": int(token), "token_str": name, "weight": float(weight)} for token, name, weight in entries
        ]
    if row.colbert is not None:
        result["colbert"] = {"tokens": row.colbert.tokens, "vectors": row.colbert.vectors}
    return result


def _base64(row: Embeddings) -> str:
    plain = row.astype("<f4", copy=False) if row.dtype == np.float32 else row
    return base64.b64encode(np.ascontiguousarray(plain).data).decode("ascii")


def _characters(*options: Any) -> int:
    """The characters of strings, and of all strings in lists."""
    return sum(
        len(option) if isinstance(option, str) else _characters(*option) for option in options if option is not None
    )


def listed(inputs: Any) -> list[Any]:
    return [inputs] if isinstance(inputs, str) else list(inputs)


# It registers its paths in the table above, and uses the functions of this file: so it is imported last.
from trimaran.serving.gateway import compatible_routes  # noqa: E402
