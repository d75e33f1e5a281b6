"""From a caller's question to the requests for a served model, and from their answers to one answer.

Nothing here touches a connection. The names are those of `docs/serving.md`, "The wire contract".
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypedDict, Unpack

import numpy as np

from trimaran.core.errors import UsageError
from trimaran.core.small_vectors import RANGES, VectorPrecision, small
from trimaran.runtime.label_words import LABEL_WORDS
from trimaran.runtime.tasks.hybrid_embedding import COLBERT, DENSE, KINDS, SPARSE, wanted_kinds
from trimaran.runtime.text import Array, Text
from trimaran.runtime.wire import COUNTS, MOST_ENTRIES, TRUNCATED
from trimaran.serving.client import given, results
from trimaran.serving.client.columns import (
    column,
    given_options,
    json_rows,
    options_column,
    portions,
    runs,
    text_requests,
)
from trimaran.serving.client.question import Ask, Model, NamedTensors
from trimaran.serving.client.results import (
    HYBRID_TENSORS,
    HybridVectors,
    Ranking,
    TokenVectors,
    TokenWeights,
    token_vectors,
    token_weights,
    without_padding,
)

Options = ParamSpec("Options")

# The contract allows 1,024 documents or labels in a request. With fewer, several requests share the work.
ENTRIES_PER_REQUEST = 256


Builder = Callable[Concatenate[Model, Any, Options], Ask[Any]]


def _asks(output: str, read: Callable[[Any], given.GivenRows]) -> Callable[[Builder[Options]], Builder[Options]]:
    """The model must give `output`, and `read` checks the texts. Only then is the call planned.

    The decorated function always gets a list. An answer to a text without a list is taken out of the list again.
    """

    def decorate(build: Builder[Options]) -> Builder[Options]:
        @wraps(build)
        def checked(model: Model, texts: Any, /, *arguments: Options.args, **options: Options.kwargs) -> Ask[Any]:
            _require(model, output)
            rows, alone = read(texts)
            ask = build(model, rows, *arguments, **options)
            return replace(ask, join=lambda parts: ask.join(parts)[0]) if alone else ask

        return checked

    return decorate


@_asks("EMBEDDING", given.texts_or_pairs)
def embed(
    model: Model,
    texts: Sequence[Text],
    *,
    prompt: str | None = None,
    dimensions: int | None = None,
    precision: VectorPrecision = "float32",
) -> Ask[Array]:
    options = given_options(prompt=known_prompt(model, prompt), outputs=_only(model, DENSE))
    size = None if dimensions is None else given.count("dimensions", dimensions)

    def join(parts: Sequence[NamedTensors]) -> Array:
        vectors = results.embeddings(model, parts)
        return small(vectors, dimensions=size, precision=precision, ranges=model.parameters.get(RANGES, ""))

    return Ask(text_requests(model, texts, options), ("EMBEDDING",), join)


def embed_noting_cuts(
    model: Model, texts: Sequence[str], *, prompt: str | None = None
) -> Ask[tuple[Array, list[bool]]]:
    """The vectors of single texts, and which of the texts were cut."""
    ask = embed(model, list(texts), prompt=prompt)
    if TRUNCATED not in model.outputs:
        raise UsageError(
            f"Model {model.name} does not say which texts it cut.", hint="Deploy it again with this version."
        )
    return Ask(
        ask.requests,
        ask.outputs,
        lambda parts: (ask.join(parts), [bool(cut) for part in parts for cut in part[TRUNCATED].ravel()]),
        counts_cuts=False,
    )


def known_prompt(model: Model, prompt: str | None) -> str | None:
    """The name of the prompt. Raises UsageError if the model has no such prompt."""
    if prompt is not None and given.string("prompt", prompt) not in model.prompts:
        raise UsageError(
            f"Model {model.name} has no prompt {prompt[:80]!r}.",
            hint=f"Known: {', '.join(model.prompts)}." if model.prompts else "It has no prompts at all: leave it out.",
        )
    return prompt


class ClassifyOptions(TypedDict, total=False):
    """How a text is classified, where not by the labels that a model has of its own."""

    # Of a zero-shot model: the labels to choose from, and whether several may be true.
    labels: Iterable[str] | None
    multi_label: bool | None
    # Of a fill-mask model: words for each label.
    label_words: Mapping[str, str | Sequence[str]] | None
    # Of a zero-shot model: a sentence with {} for a label. Of a fill-mask model: one with {} for the text and {mask}.
    template: str | None


def classify(model: Model, texts: Any, **options: Unpack[ClassifyOptions]) -> Ask[Any]:
    stated: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    return (classify_by_words if LABEL_WORDS in stated else classify_by_head)(model, texts, **stated)


@_asks("LABELS", given.texts_or_pairs)
def classify_by_head(
    model: Model,
    texts: Sequence[Text],
    *,
    labels: Iterable[str] | None = None,
    template: str | None = None,
    multi_label: bool | None = None,
) -> Ask[list[Ranking]]:
    options = given_options(template=template, multi_label=multi_label)
    requests: tuple[NamedTensors, ...]
    if "CANDIDATE_LABELS" in model.inputs:
        candidates = given.strings("labels", labels) if labels is not None else []
        if not candidates:
            raise UsageError(f"Model {model.name} needs the labels to choose from.", hint="Give labels=[…].")
        rows = max(1, min(model.max_batch_size, ENTRIES_PER_REQUEST // len(candidates)))
        requests = tuple(
            {
                "TEXT": column(chunk),
                "CANDIDATE_LABELS": np.repeat(column(candidates).T, len(chunk), axis=0),
                **options_column(options, chunk),
            }
            for chunk in runs(given.require_single(texts), rows, times=len(candidates))
        )
    elif labels is not None or options:
        raise UsageError(f"Model {model.name} has labels of its own.", hint="Leave out labels, template, multi_label.")
    else:
        requests = text_requests(model, texts)
    return Ask(requests, ("LABELS", "SCORES"), results.rankings)


@_asks("ENTITIES", given.single_texts)
def entities(
    model: Model,
    texts: Sequence[str],
    *,
    aggregation: str | None = None,
    ignore: Iterable[str] | None = None,
    stride: int | None = None,
) -> Ask[list[Any]]:
    options = given_options(aggregation=aggregation, ignore=ignore, stride=stride)
    return Ask(text_requests(model, texts, options), ("ENTITIES",), json_rows("ENTITIES"))


@_asks("ANSWERS", given.questions)
def answer(
    model: Model,
    pairs: Sequence[tuple[str, str]],
    *,
    top_k: int | None = None,
    longest: int | None = None,
    stride: int | None = None,
    no_answer: bool | None = None,
) -> Ask[list[Any]]:
    options = given_options(top_k=top_k, longest=longest, stride=stride, no_answer=no_answer)
    requests = tuple(
        {
            "QUESTION": column([question for question, _ in chunk]),
            "CONTEXT": column([context for _, context in chunk]),
            **options_column(options, chunk),
        }
        for chunk in portions(pairs, model.max_batch_size)
    )
    return Ask(requests, ("ANSWERS",), json_rows("ANSWERS"))


@_asks("FILLINGS", given.single_texts)
def fill(
    model: Model,
    texts: Sequence[str],
    *,
    top_k: int | None = None,
    targets: Iterable[str] | None = None,
    template: str | None = None,
) -> Ask[list[Any]]:
    if targets is not None or template is not None:
        require_label_words(model)
    options = given_options(top_k=top_k, targets=targets, template=template)
    return Ask(text_requests(model, texts, options), ("FILLINGS",), json_rows("FILLINGS"))


@_asks("FILLINGS", given.single_texts)
def classify_by_words(
    model: Model, texts: Sequence[str], /, *, label_words: Any, template: str | None = None, **others: Any
) -> Ask[list[Ranking]]:
    if others:
        raise UsageError("labels and multi_label are for zero-shot models.", hint="Leave them out with label_words.")
    require_label_words(model)
    options = given_options(label_words=label_words, template=template)

    def join(parts: Sequence[NamedTensors]) -> list[Ranking]:
        return [[(entry["label"], entry["score"]) for entry in row] for row in json_rows("FILLINGS")(parts)]

    return Ask(text_requests(model, texts, options), ("FILLINGS",), join)


def require_label_words(model: Model) -> None:
    if LABEL_WORDS not in model.parameters:
        raise UsageError(
            f"Model {model.name} was deployed before words could be scored.", hint="Deploy it again with this version."
        )


def rerank(
    model: Model,
    query: str,
    documents: Iterable[str],
    *,
    top_k: int | None = None,
    prompt: str | None = None,
    instruction: str | None = None,
) -> Ask[list[tuple[int, float]]]:
    _require(model, "INDICES")
    options = given_options(prompt=known_prompt(model, prompt), instruction=instruction)
    query_column = column([given.string("query", query)])
    best = None if top_k is None else given.count("top_k", top_k)
    words = (instruction or "") + query
    chunks = [*runs(given.strings("documents", documents), ENTRIES_PER_REQUEST, beside=len(words))]
    firsts = [0, *itertools.accumulate(map(len, chunks))]
    requests = tuple(
        {"QUERY": query_column, "DOCUMENTS": column(chunk).T, **options_column(options, [query])} for chunk in chunks
    )

    def join(parts: Sequence[NamedTensors]) -> list[tuple[int, float]]:
        scored = [
            (first + int(index), float(score))
            for first, part in zip(firsts, parts, strict=False)
            for index, score in zip(part["INDICES"][0], part["SCORES"][0], strict=True)
        ]
        return sorted(scored, key=lambda pair: (-pair[1], pair[0]))[:best]

    return Ask(requests, ("INDICES", "SCORES"), join)


def choose(model: Model, text: str, choices: Iterable[str]) -> Ask[list[tuple[int, float]]]:
    """All choices go in one request: their probabilities add up to 1."""
    _require(model, "BEST")
    offered = given.strings("choices", choices)
    if not 2 <= len(offered) <= MOST_ENTRIES:
        raise UsageError(f"choices wants 2 to {MOST_ENTRIES} strings, found {len(offered)}.")
    request = {"TEXT": column([given.string("text", text)]), "CHOICES": column(offered).T}

    def join(parts: Sequence[NamedTensors]) -> list[tuple[int, float]]:
        return [
            (int(index), float(score))
            for index, score in zip(parts[0]["BEST"][0], parts[0]["PROBABILITIES"][0], strict=True)
        ]

    return Ask((request,), ("BEST", "PROBABILITIES"), join)


@_asks("FOLLOWS", given.questions)
def follows(model: Model, pairs: Sequence[tuple[str, str]]) -> Ask[list[float]]:
    requests = tuple(
        {"TEXT": column([first for first, _ in chunk]), "NEXT": column([second for _, second in chunk])}
        for chunk in portions(pairs, model.max_batch_size)
    )
    return Ask(
        requests, ("FOLLOWS",), lambda parts: [float(value) for part in parts for value in part["FOLLOWS"][:, 0]]
    )


@_asks("TOKEN_EMBEDDINGS", given.texts_or_pairs)
def tokens(model: Model, texts: Sequence[Text], *, prompt: str | None = None) -> Ask[list[TokenVectors]]:
    options = given_options(prompt=known_prompt(model, prompt), outputs=_only(model, COLBERT))
    requests = text_requests(model, texts, options, bytes_a_token=_bytes_a_token(model))
    return Ask(requests, _tensors(model, COLBERT), lambda parts: [*token_vectors(parts)], keep=without_padding)


@_asks("WEIGHTS", given.single_texts)
def sparse(
    model: Model, texts: Sequence[str], *, top_k: int | None = None, prompt: str | None = None
) -> Ask[list[TokenWeights]]:
    options = given_options(top_k=top_k, prompt=known_prompt(model, prompt), outputs=_only(model, SPARSE))
    return Ask(text_requests(model, texts, options), _tensors(model, SPARSE), lambda parts: [*token_weights(parts)])


class HybridOptions(TypedDict, total=False):
    """What is asked of a hybrid model, and how."""

    # Some of "dense", "sparse" and "colbert"; all by default.
    outputs: Iterable[str] | None
    # The most weighted tokens of a text.
    top_k: int | None
    prompt: str | None


@_asks("VECTOR_TOKENS", given.single_texts)
def hybrid(
    model: Model,
    texts: Sequence[str],
    *,
    outputs: Iterable[str] | None = None,
    top_k: int | None = None,
    prompt: str | None = None,
) -> Ask[list[HybridVectors]]:
    try:
        kinds = wanted_kinds(None if outputs is None else given.strings("outputs", outputs))
    except ValueError as error:
        raise UsageError(str(error)) from error
    options = given_options(top_k=top_k, prompt=known_prompt(model, prompt), outputs=kinds)
    names = tuple(name for kind in kinds for name in _tensors(model, kind))

    def join(parts: Sequence[NamedTensors]) -> list[HybridVectors]:
        read: dict[str, Callable[[Sequence[NamedTensors]], Iterable[Any]]] = {
            DENSE: functools.partial(results.embeddings, model),
            SPARSE: token_weights,
            COLBERT: token_vectors,
        }
        columns: list[Iterable[Any]] = [
            read[kind](parts) if kind in kinds else itertools.repeat(None) for kind in KINDS
        ]
        return [HybridVectors(*row) for row in zip(*columns, strict=False)]

    if COLBERT not in kinds:
        return Ask(text_requests(model, texts, options), names, join)
    requests = text_requests(model, texts, options, bytes_a_token=_bytes_a_token(model))
    return Ask(requests, names, join, keep=without_padding)


def _bytes_a_token(model: Model) -> int:
    """Of the vector of a token."""
    return 4 * max(1, model.outputs["TOKEN_EMBEDDINGS"][-1])


def _only(model: Model, kind: str) -> list[str] | None:
    """The option with which a hybrid model gives one of its outputs; other models have no such option."""
    return [kind] if "VECTOR_TOKENS" in model.outputs else None


def _tensors(model: Model, kind: str) -> tuple[str, ...]:
    names = HYBRID_TENSORS[kind]
    return names if "VECTOR_TOKENS" in model.outputs else tuple(name.removeprefix("VECTOR_") for name in names)


# The method for each kind of model, by the output that marks it.
METHODS: dict[str, Callable[..., Ask[Any]]] = {
    "VECTOR_TOKENS": hybrid,
    "EMBEDDING": embed,
    "LABELS": classify,
    "ENTITIES": entities,
    "ANSWERS": answer,
    "FILLINGS": fill,
    "INDICES": rerank,
    "BEST": choose,
    "FOLLOWS": follows,
    "TOKEN_EMBEDDINGS": tokens,
    "WEIGHTS": sparse,
}


def query(model: Model, texts: Any) -> Ask[Any]:
    """The question that the model is made for, with its defaults."""
    for output, build in METHODS.items():
        # A query with its documents, or a text with its choices, is not a list of texts.
        if output in model.outputs and build not in (rerank, choose):
            return build(model, texts)
    raise _wrong_method(model, "what a list of texts can be asked for")


def _require(model: Model, output: str) -> None:
    if output not in model.outputs:
        raise _wrong_method(model, output)


def _wrong_method(model: Model, wanted: str) -> UsageError:
    fitting = [build.__name__ for output, build in METHODS.items() if output in model.outputs]
    given_outputs = [output for output in model.outputs if output not in COUNTS]
    return UsageError(
        f"Model {model.name} gives {', '.join(given_outputs)}, not {wanted}.",
        hint=f"Use {' or '.join(fitting)}." if fitting else "Ask it with tritonclient.",
    )
