"""What is read or answered once for each text of a request is multiplied: a body of few bytes became gigabytes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

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
    ask = calls.rerank(model, "x" * LONG, ["a"] * 10)
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


ANSWERS: dict[str, dict[str, Any]] = {
    "/fill": {"inputs": ["[MASK] " * 200] * 4},
    "/hybrid": {"inputs": ["the cat"] * 9},
    "/score": {"query": "the cat", "documents": ["the cat"] * 40},
}


@pytest.mark.parametrize("path", ANSWERS)
def test_an_answer_that_fills_the_memory_is_refused_before_the_model_is_asked(path: str, tmp_path: Path) -> None:
    """Each word for a mask comes with the whole text, and token vectors are thousands of bytes for each token."""
    tiny_tokenizer(tmp_path / "tokenizer.json")
    tiny_serving(tmp_path)
    vocabulary = Vocabulary(tmp_path)
    vocabulary._mask = "[MASK]"
    call: Any = call_with(vocabulary, answer_bytes=100_000)
    served = SimpleNamespace(vocabulary=vocabulary, token_width=256, counts_tokens=True, name="m")
    call.pick = lambda name: asyncio.sleep(0, served)
    asked = ROUTES[path].request
    assert asked is not None
    with pytest.raises(Refusal, match="The bytes of the answer") as refused:
        asyncio.run(ROUTES[path].handle(call, asked.model_validate(ANSWERS[path])))
    assert refused.value.status == 413
    # One is answered: then there is a client to ask, which is missing here.
    few = {name: value[:1] if isinstance(value, list) else value for name, value in ANSWERS[path].items()}
    few |= {"inputs": ["[MASK]"]} if path == "/fill" else {}
    with pytest.raises(AttributeError):
        asyncio.run(ROUTES[path].handle(call, asked.model_validate(few)))
