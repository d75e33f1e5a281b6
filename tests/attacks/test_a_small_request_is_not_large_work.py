"""What is read or answered once for each text of a request is multiplied: a body of few bytes became gigabytes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError as SchemaError
from tokenizers import Tokenizer, processors

from tests.attacks.tokenizers_of_every_kind import word_piece
from tests.tiny import tiny_serving, tiny_tokenizer
from trimaran.runtime.tasks.zero_shot_classification import hypotheses_of
from trimaran.runtime.text import TextEncoder
from trimaran.serving.client import Model, calls
from trimaran.serving.gateway import messages
from trimaran.serving.gateway.admission import Admission, RateLimiter
from trimaran.serving.gateway.call import Call
from trimaran.serving.gateway.refusals import Refusal
from trimaran.serving.gateway.routes import ROUTES
from trimaran.serving.gateway.settings import RequestLimits
from trimaran.serving.gateway.vocabulary import Vocabulary

LONG = 200_000


@pytest.mark.parametrize(
    "template", ["{:1000000000}", "{0:>9999999999}", "{0.__class__}", "{0!r:9999}{}", "{} {}", "{"]
)
def test_a_template_is_not_read_as_a_format(template: str) -> None:
    """`{:1000000000}` made each label a gigabyte."""
    with pytest.raises(ValueError, match="once, where a label goes"):
        hypotheses_of(template, ["sport"])
    assert hypotheses_of("It is {}.", ["sport", "{:9999}"]) == ["It is sport.", "It is {:9999}."]


BODIES: dict[str, tuple[type[messages.RequestBody], dict[str, Any]]] = {
    "an instruction": (messages.RerankRequest, {"query": "a", "documents": ["b"] * 9, "instruction": "x" * LONG}),
    "a label": (messages.ClassifyRequest, {"inputs": ["a"] * 9, "labels": ["x" * LONG]}),
    "a template": (messages.ClassifyRequest, {"inputs": ["a"] * 9, "labels": ["b"], "template": "x" * LONG}),
    "the name of a label": (messages.ClassifyRequest, {"inputs": ["a"] * 9, "label_words": {"x" * LONG: ["b"]}}),
    "a word of a label": (messages.ClassifyRequest, {"inputs": ["a"] * 9, "label_words": {"b": ["x" * LONG]}}),
    "a target": (messages.FillRequest, {"inputs": ["a"] * 9, "targets": ["x" * LONG]}),
}


@pytest.mark.parametrize("what", BODIES)
def test_what_is_sent_with_every_text_is_short(what: str) -> None:
    schema, body = BODIES[what]
    with pytest.raises(SchemaError, match="at most"):
        schema.model_validate_json(json.dumps(body))


def call_with(vocabulary: Any, **limits: int) -> Call:
    gateway = SimpleNamespace(
        counting=Admission(capacity=1, queue=100, patience_s=60),
        settings=SimpleNamespace(limits=RequestLimits(**limits)),
        text_rates=RateLimiter(None),
    )
    call = Call(gateway, "id", {}, 0.0)  # type: ignore[arg-type]
    served = SimpleNamespace(vocabulary=vocabulary)
    call.check = lambda texts, **options: asyncio.run(  # type: ignore[attr-defined]
        call.check_size(served, texts, **{"whole": False, "times": 1, "prompt": None, **options})  # type: ignore
    )
    return call


def test_a_long_query_is_counted_with_every_document() -> None:
    """2,048 documents of one letter with a query of 200,000 characters that cannot be cut: 400 MB to tokenise."""

    class Unused:
        def count(self, *texts: object, **options: object) -> None:
            raise AssertionError("tokenised")

    call: Any = call_with(Unused())
    with pytest.raises(Refusal, match="repeated ones included: 409,602,048") as refused:
        call.check([("x" * LONG, "a")] * 2048)
    assert refused.value.status == 413
    with pytest.raises(Refusal, match="repeated ones included"):
        call.check(["x" * LONG], times=256)


def test_documents_of_a_long_query_go_in_requests_of_their_own() -> None:
    """Requests of other callers get their turn between them."""
    model = Model("m", "rerank", 32, frozenset({"QUERY"}), {"INDICES": (-1,)}, {})
    assert len(calls.rerank(model, "x" * LONG, ["a"] * 10).requests) == 10
    ask = calls.rerank(model, "x" * (LONG // 5), ["a"] * 10)
    assert [request["DOCUMENTS"].shape for request in ask.requests] == [(1, 2)] * 5
    parts = [{"INDICES": [[1, 0]], "SCORES": [[number, -number]]} for number in range(5)]
    assert ask.join(parts)[:2] == [(9, 4.0), (7, 3.0)]  # type: ignore[arg-type]
    assert len(calls.rerank(model, "a", ["a"] * 256).requests) == 1


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    tokenizer = Tokenizer.from_str(word_piece().to_str())
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")],
    )  # fmt: skip
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    tiny_serving(tmp_path)
    return tmp_path


@pytest.mark.parametrize("question", [1, 4, 8, 11, 12])
@pytest.mark.parametrize("context", [1, 8, 50, 777])
def test_every_window_of_a_context_counts_with_its_question(pairs: Path, question: int, context: int) -> None:
    """A question that left room for one token was read with every token of the context, for the price of one."""
    vocabulary = Vocabulary(pairs)
    encoder = TextEncoder(
        str(pairs / "tokenizer.json"), inputs=("input_ids",), minimum=1, maximum=vocabulary.longest, pad_id=0
    )
    texts = ("a " * question, "b " * context)
    windows = encoder.windows(*texts, stride=128)
    assert vocabulary.count([texts], whole=True, most=10**9).tokens == sum(map(len, windows))


def test_a_question_that_leaves_no_room_is_too_much_work(pairs: Path) -> None:
    vocabulary = Vocabulary(pairs)
    call: Any = call_with(vocabulary)
    texts = ("a " * (vocabulary.longest - 4), "b " * 50_000)
    with pytest.raises(Refusal, match="The tokens of the request"):
        call.check([texts], whole=True)


WORDS_FOR_EVERY_TEXT: dict[str, tuple[str, str, dict[str, Any]]] = {
    "label words": ("/classify", "fill-mask", {"label_words": {f"{n}": ["x" * 100] * 64 for n in range(16)}}),
    "the names of labels": ("/classify", "fill-mask", {"label_words": {f"{n:0999}": ["x"] for n in range(256)}}),
    "labels": ("/classify", "zero-shot-classification", {"labels": ["x" * 1000] * 32}),
    "targets": ("/fill", "fill-mask", {"targets": ["x" * 100] * 256}),
}


@pytest.mark.parametrize("what", WORDS_FOR_EVERY_TEXT)
def test_words_that_are_sent_with_every_text_count_as_often(what: str, tmp_path: Path) -> None:
    """They are JSON in every row of a request: a body of 2 MB with 2,048 texts became 9 GB in the gateway."""
    path, task, words = WORDS_FOR_EVERY_TEXT[what]
    vocabulary = _tiny_vocabulary(tmp_path)
    call: Any = call_with(vocabulary, body_bytes=10_000)
    served = SimpleNamespace(vocabulary=vocabulary, counts_tokens=True, name="m", task=task)
    call.pick = lambda name: asyncio.sleep(0, served)
    schema: Any = ROUTES[path].request
    with pytest.raises(Refusal, match="repeated ones included") as refused:
        asyncio.run(ROUTES[path].handle(call, schema.model_validate({"inputs": ["a"] * 64, **words})))
    assert refused.value.status == 413


def test_options_are_in_memory_once() -> None:
    words = {"sport": ["x" * 1000]}
    model = Model("m", "fill-mask", 32, frozenset({"TEXT"}), {"FILLINGS": (1,)}, {"label_words": "true"})
    [request] = calls.classify(model, ["a"] * 32, label_words=words).requests
    assert request["OPTIONS"].shape == (32, 1) and len(set(map(id, request["OPTIONS"].ravel()))) == 1


def test_vectors_of_tokens_are_not_padded_to_gigabytes() -> None:
    """31 short texts and a long one of 8,192 tokens were 1 GB of padding, in each of 64 requests."""
    outputs = {"TOKEN_EMBEDDINGS": (-1, 1024), "TOKENS": (-1,), "LENGTH": (1,)}
    model = Model("m", "feature-extraction", 32, frozenset({"TEXT"}), outputs, {})
    texts = ["x" * 24_576, *["a"] * 31] * 3
    ask = calls.tokens(model, texts)
    sizes = [len(request["TEXT"]) for request in ask.requests]
    assert sizes == [1, 31] * 3
    # Of each answer, only what belongs to a text is kept until the others come.
    answer = {
        "TOKEN_EMBEDDINGS": np.ones((2, 8192, 4), np.float32),
        "TOKENS": np.full((2, 3), b"a", np.object_),
        "LENGTH": np.array([[3], [1]], np.int32),
    }
    kept = ask.keep(answer)
    assert [row.base is None and row.shape for row in kept["TOKEN_EMBEDDINGS"]] == [(3, 4), (1, 4)]
    assert [(row.tokens, row.vectors.shape) for row in ask.join([kept])] == [(["a"] * 3, (3, 4)), (["a"], (1, 4))]


ANSWERS: dict[str, dict[str, Any]] = {
    "/fill": {"inputs": ["[MASK] " * 200] * 4},
    "/fill with targets": {"inputs": ["the cat " * 50 + "[MASK]"] * 20, "targets": ["cat"] * 200, "top_k": 1000},
    "/fill with a template": {"inputs": ["the cat " * 100] * 9, "template": "[MASK] " * 100 + "{} {mask}"},
    "/hybrid": {"inputs": ["the cat"] * 9},
    "/score": {"query": "the cat", "documents": ["the cat"] * 40},
}


@pytest.mark.parametrize("path", ANSWERS)
def test_an_answer_that_fills_the_memory_is_refused_before_the_model_is_asked(path: str, tmp_path: Path) -> None:
    """Each word for a mask comes with the whole text, and token vectors are thousands of bytes for each token."""
    vocabulary = _tiny_vocabulary(tmp_path)
    vocabulary._mask = "[MASK]"
    call: Any = call_with(vocabulary, answer_bytes=100_000)
    body, path = ANSWERS[path], path.split(maxsplit=1)[0]
    served = SimpleNamespace(vocabulary=vocabulary, token_width=256, counts_tokens=True, name="m")
    call.pick = lambda name: asyncio.sleep(0, served)
    asked = ROUTES[path].request
    assert asked is not None
    with pytest.raises(Refusal, match="The bytes of the answer") as refused:
        asyncio.run(ROUTES[path].handle(call, asked.model_validate(body)))
    assert refused.value.status == 413
    # One is answered: then there is a client to ask, which is missing here.
    few = {name: value[:1] if isinstance(value, list) else value for name, value in body.items()}
    few |= {"inputs": ["[MASK]"], "template": None} if path == "/fill" else {}
    with pytest.raises(AttributeError):
        asyncio.run(ROUTES[path].handle(call, asked.model_validate(few)))


def _tiny_vocabulary(folder: Path) -> Vocabulary:
    tiny_tokenizer(folder / "tokenizer.json")
    tiny_serving(folder)
    return Vocabulary(folder)
