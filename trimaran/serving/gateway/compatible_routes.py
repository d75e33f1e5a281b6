"""Paths of other servers, so that their clients work unchanged: TEI's, Cohere's embed, Cohere's and Jina's rerank."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from trimaran import __version__
from trimaran.core.errors import UsageError
from trimaran.core.small_vectors import RANGES, small
from trimaran.core.tasks import TASKS
from trimaran.runtime.text import Text
from trimaran.serving.client import AsyncClient, Embeddings
from trimaran.serving.gateway import compatible_messages as messages
from trimaran.serving.gateway.call import Call, Reply
from trimaran.serving.gateway.catalogue import ServedModel
from trimaran.serving.gateway.refusals import invalid, not_ready
from trimaran.serving.gateway.routes import EMBEDDERS, embedded, embedding_texts, known_prompt, listed, route

# What TEI calls the kind of a model.
_KINDS = {
    "text-classification": "classifier",
    "zero-shot-classification": "classifier",
    "token-classification": "classifier",
    "rerank": "reranker",
}
# Cohere's `input_type` -> the name of a prompt, where they are not called alike.
_PROMPTS = {"search_query": "query", "search_document": "document"}


@route("/embed", messages.EmbedRequest, messages.EmbedResponse, tasks=EMBEDDERS)
async def embed(call: Call, body: messages.EmbedRequest) -> Any:
    """Vectors of texts, as in TEI."""
    served = await call.pick(body.model)
    prompt = known_prompt(served, body.prompt_name)
    texts = await embedding_texts(call, served, body.inputs)
    vectors = await embedded(call, served, texts, prompt, dimensions=body.dimensions)
    return _unit(vectors) if body.normalize else vectors


@route(
    "/embed_sparse",
    messages.EmbedSparseRequest,
    messages.EmbedSparseResponse,
    tasks=("sparse-embedding", "hybrid-embedding"),
)
async def embed_sparse(call: Call, body: messages.EmbedSparseRequest) -> list[list[Reply]]:
    """Weights over the vocabulary, as in TEI."""
    served = await call.pick(body.model)
    prompt = known_prompt(served, body.prompt_name)
    texts = listed(body.inputs)
    rows = await call.ask(served, texts, lambda client: client.sparse(served.name, texts, prompt=prompt), prompt=prompt)
    return [
        [{"index": int(index), "value": float(value)} for index, value in zip(row.ids, row.weights, strict=True)]
        for row in rows
    ]


@route("/similarity", messages.SimilarityRequest, messages.SimilarityResponse, tasks=EMBEDDERS)
async def similarity(call: Call, body: messages.SimilarityRequest) -> list[float]:
    """The cosine of sentences with one, as in TEI."""
    served = await call.pick(body.model)
    texts = [body.inputs.source_sentence, *body.inputs.sentences]
    vectors = _unit(await call.ask(served, texts, lambda client: client.embed(served.name, texts)))
    return [float(value) for value in vectors[1:] @ vectors[0]]


@route("/predict", messages.PredictRequest, messages.PredictResponse, tasks=("text-classification",))
async def predict(call: Call, body: messages.PredictRequest) -> list[Any]:
    """Labels with scores, best first, as in TEI."""
    refuse_raw_scores(body.raw_scores)
    served = await call.pick(body.model)
    # A list of strings is one input: a text, and its pair.
    several = not isinstance(body.inputs, str) and isinstance(body.inputs[0], list)
    rows: list[Any] = list(body.inputs) if several else [body.inputs]
    texts: list[Text] = [row if isinstance(row, str) else row[0] if len(row) == 1 else (row[0], row[1]) for row in rows]
    rankings = await call.ask(served, texts, lambda client: client.classify(served.name, texts))
    answers = [[{"label": label, "score": score} for label, score in ranking] for ranking in rankings]
    return answers if several else answers[0]


@route("/v2/embed", messages.ServedEmbedRequest, messages.ServedEmbedResponse, tasks=EMBEDDERS)
async def embed_v2(call: Call, body: messages.ServedEmbedRequest) -> Reply:
    """Vectors of texts, whole and small ones of one pass, as in Cohere's API."""
    served = await call.pick(body.model)
    name = _PROMPTS.get(body.input_type or "", body.input_type)
    prompt = name if name in served.vocabulary.prompts else None

    async def by_kind(client: AsyncClient) -> Reply:
        vectors = await client.embed(served.name, body.texts, prompt=prompt)
        ranges = (await client.model(served.name)).parameters.get(RANGES, "")
        return {
            kind: small(
                vectors,
                dimensions=body.output_dimension,
                precision="float32" if kind == "float" else kind,
                ranges=ranges,
            )
            for kind in body.embedding_types
        }

    try:
        embeddings = await call.ask(served, body.texts, by_kind, prompt=prompt, model_counts=True)
    except UsageError as error:
        field = "embedding_types" if body.output_dimension is None else "output_dimension"
        raise invalid(error.message, param=field) from error
    meta = {"api_version": {"version": "2"}, "billed_units": {"input_tokens": call.tokens}}
    kind = {"response_type": "embeddings_by_type"}
    return call.reply(id=call.request_id, **kind, embeddings=embeddings, texts=body.texts, meta=meta)


@route("/v1/rerank", messages.ServedRerankRequest, messages.ServedRerankResponse, tasks=("rerank",))
async def rerank_v1(call: Call, body: messages.ServedRerankRequest) -> Reply:
    """Documents, ranked by how well they fit a query, as in Cohere's and Jina's API."""
    return await _ranked(call, body, version="1")


@route("/v2/rerank", messages.ServedRerankRequest, messages.ServedRerankResponse, tasks=("rerank",))
async def rerank_v2(call: Call, body: messages.ServedRerankRequest) -> Reply:
    """Documents, ranked by how well they fit a query, as in Cohere's API."""
    return await _ranked(call, body, version="2")


async def _ranked(call: Call, body: messages.ServedRerankRequest, *, version: str) -> Reply:
    served = await call.pick(body.model)
    documents = [document if isinstance(document, str) else document.text for document in body.documents]
    texts = [document for document in documents if document is not None]
    if len(texts) < len(documents):
        raise invalid("A document is a text, or an object with `text`.", param="documents")
    ranking = await call.ask(
        served,
        [(body.query, text) for text in texts],
        lambda client: client.rerank(served.name, body.query, texts, top_k=body.top_n),
    )
    results: list[Reply] = [{"index": index, "relevance_score": score} for index, score in ranking]
    if body.return_documents:
        for result in results:
            result["document"] = {"text": texts[result["index"]]}
    meta = {"api_version": {"version": version}, "billed_units": {"search_units": 1}}
    return call.reply(id=call.request_id, results=results, meta=meta)


@route("/tokenize", messages.TokenizeRequest, messages.TokenizeResponse, tasks=tuple(TASKS))
async def tokenize(call: Call, body: messages.TokenizeRequest) -> list[list[Reply]]:
    """The tokens of texts, as in TEI. Where several models are served, the embedding model's unless one is named."""
    served = await _any_model(call, body.model)
    prompt = known_prompt(served, body.prompt_name)
    texts = listed(body.inputs)
    # Limits and rates hold here too; long texts are shown to their end.
    await call.check_size(served, texts, whole=True, times=1, prompt=prompt)
    read = functools.partial(served.vocabulary.tokens, texts, prompt=prompt, special=body.add_special_tokens)
    return await call.in_thread(read)


@route("/info", None, messages.InfoResponse, tasks=tuple(TASKS))
async def info(call: Call, body: None) -> Reply:
    """What is served, as in TEI."""
    served = await _any_model(call, None, first=True)
    limits = call.gateway.settings.limits
    kind = _KINDS.get(served.task, "embedding")
    return {
        "model_id": served.name,
        "model_sha": None,
        "model_dtype": "float32",
        "model_type": {kind: {"pooling": "in the graph"} if kind == "embedding" else {}},
        "max_concurrent_requests": call.gateway.settings.in_flight,
        "max_input_length": served.vocabulary.longest,
        "max_batch_tokens": limits.tokens,
        "max_batch_requests": served.batch,
        "max_client_batch_size": limits.texts,
        "auto_truncate": True,
        "tokenization_workers": 1,
        "version": __version__,
        "models": [model.name for model in call.gateway.catalogue.models],
    }


async def _any_model(call: Call, name: str | None, *, first: bool = False) -> ServedModel:
    """The named model, or the only one; of several, the embedding model, or with `first` whichever is listed first."""
    models = call.gateway.catalogue.models
    embedders = [served for served in models if served.task in EMBEDDERS]
    if name is None and len(models) > 1 and (embedders or first):
        call.tasks = EMBEDDERS if embedders else (models[0].task,)
        if first or len(embedders) == 1:
            return (embedders or list(models))[0]
    if name is None and not models:
        raise not_ready("No model is served.")
    return await call.pick(name)


def refuse_raw_scores(raw: bool) -> None:
    """Raises Refusal (422). What is before the activation never leaves the model's stage."""
    if raw:
        raise invalid("Scores are given as the model's own library gives them, not raw.", param="raw_scores")


def _unit(vectors: Embeddings) -> Embeddings:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths == 0, 1, lengths), np.float32)
