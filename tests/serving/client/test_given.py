"""What callers may give the clients: one text or a list of them, and a sentence for everything else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from trimaran.core.errors import UsageError
from trimaran.serving.client import AsyncClient, Client, Model, calls
from trimaran.serving.client.question import Ask


def model(*outputs: str, inputs: tuple[str, ...] = ("TEXT", "TEXT_PAIR")) -> Model:
    return Model("m", "", 2, frozenset(inputs), dict.fromkeys(outputs, (1,)), {})


EMBEDDING = model("EMBEDDING")
CLASSES = model("LABELS", "SCORES")
ZERO_SHOT = model("LABELS", "SCORES", inputs=("TEXT", "CANDIDATE_LABELS"))
ENTITIES = model("ENTITIES", inputs=("TEXT",))
SPANS = model("ANSWERS", inputs=("QUESTION", "CONTEXT"))
FILLINGS = model("FILLINGS", inputs=("TEXT",))
RANKING = model("INDICES", "SCORES", inputs=("QUERY", "DOCUMENTS"))
TOKENS = model("TOKEN_EMBEDDINGS", "TOKENS", "LENGTH")
WEIGHTS = model("WEIGHTS", "TOKEN_IDS", "TOKENS", inputs=("TEXT",))

# Methods that read texts, each with a model that it fits.
TEXT_METHODS: dict[str, Callable[[Any], Ask[Any]]] = {
    "embed": lambda texts: calls.embed(EMBEDDING, texts),
    "classify": lambda texts: calls.classify(CLASSES, texts),
    "zero-shot": lambda texts: calls.classify(ZERO_SHOT, texts, labels=["x"]),
    "entities": lambda texts: calls.entities(ENTITIES, texts),
    "fill": lambda texts: calls.fill(FILLINGS, texts),
    "tokens": lambda texts: calls.tokens(TOKENS, texts),
    "sparse": lambda texts: calls.sparse(WEIGHTS, texts),
    "query": lambda texts: calls.query(EMBEDDING, texts),
}
PAIR_METHODS = ("embed", "classify", "tokens")


def echoed(ask: Ask[Any]) -> list[dict[str, Any]]:
    """Answers that show what was sent: of each text its length."""
    found = []
    for request in ask.requests:
        first = request["TEXT"] if "TEXT" in request else request["QUESTION"]
        lengths = np.array([[len(row[0])] for row in first])
        column = np.array([[b"[%d]" % length[0]] for length in lengths], np.object_)
        found.append(
            {
                "EMBEDDING": lengths.astype(np.float32),
                "LABELS": np.array([[b"length"]] * len(lengths), np.object_),
                "SCORES": lengths.astype(np.float32),
                "ENTITIES": column,
                "ANSWERS": column,
                "FILLINGS": column,
                "TOKEN_EMBEDDINGS": lengths[:, :, None].astype(np.float32),
                "TOKENS": np.array([[b"t"]] * len(lengths), np.object_),
                "LENGTH": np.ones((len(lengths), 1), np.int32),
                "TOKEN_IDS": lengths.astype(np.int64),
                "WEIGHTS": lengths.astype(np.float32),
            }
        )
    return found


def sent(ask: Ask[Any], name: str = "TEXT") -> list[str]:
    return [row[0].decode() for request in ask.requests for row in request[name]]


@pytest.mark.parametrize("method", TEXT_METHODS)
def test_one_string_is_one_text(method: str) -> None:
    assert sent(TEXT_METHODS[method]("a single string")) == ["a single string"]


@pytest.mark.parametrize("method", TEXT_METHODS)
def test_one_string_gets_the_answer_that_a_list_of_it_holds(method: str) -> None:
    alone, listed = TEXT_METHODS[method]("four"), TEXT_METHODS[method](["four"])
    answers = listed.join(echoed(listed))
    assert len(answers) == 1
    assert repr(alone.join(echoed(alone))) == repr(answers[0])


def test_one_string_is_one_vector_and_a_list_is_a_matrix() -> None:
    alone, listed = calls.embed(EMBEDDING, "four"), calls.embed(EMBEDDING, ["four"])
    assert alone.join(echoed(alone)).shape == (1,)
    assert listed.join(echoed(listed)).shape == (1, 1)


def test_one_string_is_one_ranking() -> None:
    ask = calls.classify(CLASSES, "four")
    assert ask.join(echoed(ask)) == [("length", 4.0)]


def test_an_empty_string_is_a_text() -> None:
    assert sent(calls.embed(EMBEDDING, "")) == [""]


@pytest.mark.parametrize("method", TEXT_METHODS)
@pytest.mark.parametrize("kind", [list, tuple, iter, np.array], ids=["list", "tuple", "iterator", "array"])
def test_anything_with_an_order_is_a_list(method: str, kind: Callable[[Any], Any]) -> None:
    ask = TEXT_METHODS[method](kind(["a", "b", "c"]))
    assert sent(ask) == ["a", "b", "c"]
    assert len(ask.join(echoed(ask))) == 3


@pytest.mark.parametrize("method", TEXT_METHODS)
def test_an_empty_list_asks_nothing(method: str) -> None:
    ask = TEXT_METHODS[method]([])
    assert ask.requests == ()
    assert len(ask.join([])) == 0


@pytest.mark.parametrize("method", TEXT_METHODS)
@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (b"bytes", "found bytes"),
        (bytearray(b"a"), "found bytearray"),
        (None, "found None"),
        (5, "found int"),
        (0.5, "found float"),
        (True, "found bool"),
        ({"a": "b"}, "found dict"),
        ({"a", "b"}, "found set.*A set has no order"),
        (object(), "found object"),
        (np.array("a"), "found ndarray"),
        (["a", 5], "found int (as|at) entry 1"),
        ([None], "found None (as|at) entry 0"),
        (["a", b"b"], "found bytes (as|at) entry 1"),
        ([{"text": "a"}], "found dict (as|at) entry 0"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_is_no_text_is_named(method: str, texts: Any, words: str) -> None:
    with pytest.raises(UsageError, match=f"^Wanted .*{words}"):
        TEXT_METHODS[method](texts)


@pytest.mark.parametrize("method", PAIR_METHODS)
def test_a_pair_stands_in_a_list(method: str) -> None:
    ask = TEXT_METHODS[method]([("a", "b"), ["c", "d"]])
    assert (sent(ask), sent(ask, "TEXT_PAIR")) == (["a", "c"], ["b", "d"])


@pytest.mark.parametrize("method", PAIR_METHODS)
def test_a_tuple_of_two_strings_is_refused_because_it_may_be_two_texts_or_a_pair(method: str) -> None:
    with pytest.raises(UsageError, match=r"two texts or one pair.*\[\(first, second\)\] for one pair"):
        TEXT_METHODS[method](("a", "b"))


def test_a_tuple_of_two_strings_is_two_texts_where_there_are_no_pairs() -> None:
    assert sent(calls.entities(ENTITIES, ("a", "b"))) == ["a", "b"]


@pytest.mark.parametrize(
    ("pair", "words"),
    [(("a", "b", "c"), "3 parts in entry 1"), (("a",), "1 parts in entry 1"), (("a", None), "None in entry 1")],
)
def test_a_pair_has_two_strings(pair: Any, words: str) -> None:
    with pytest.raises(UsageError, match=f"{words}.*A pair has two strings"):
        calls.embed(EMBEDDING, ["x", pair])


def test_one_question_with_its_context_gets_one_answer() -> None:
    ask = calls.answer(SPANS, ("where", "there"))
    assert (sent(ask, "QUESTION"), sent(ask, "CONTEXT")) == (["where"], ["there"])
    assert ask.join(echoed(ask)) == [5]


def test_a_list_of_questions_gets_a_list_of_answers() -> None:
    ask = calls.answer(SPANS, (pair for pair in [("where", "there")]))
    assert ask.join(echoed(ask)) == [[5]]


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        ("ab", "found str"),
        (["ab"], "found str as entry 0"),
        (["a question", "a context"], "found str as entry 0"),
        (("a", "b", "c"), "found 3 parts in the pair"),
        (("a", 5), "found int in the pair"),
        ([("a", "b", "c")], "found 3 parts in entry 0"),
        ([("a", b"b")], "found bytes in entry 0"),
        ({"question": "a", "context": "b"}, "found dict"),
        ([{"question": "a", "context": "b"}], "found dict as entry 0"),
        (None, "found None"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_is_no_question_with_its_context_is_named(pairs: Any, words: str) -> None:
    with pytest.raises(
        UsageError, match=rf"Wanted a \(question, context\) pair, or a list of them, found.*{words[6:]}"
    ):
        calls.answer(SPANS, pairs)


@pytest.mark.parametrize(
    ("query", "documents", "words"),
    [
        ("a", "one document", r"documents wants a list of strings, found one string. Write documents=\[…\]"),
        ("a", ["b", 5], "documents wants a list of strings, found int at entry 1"),
        ("a", None, "a list of strings as documents, found None"),
        ("a", b"b", "a list of strings as documents, found bytes"),
        (["a"], ["b"], "query wants one string, found list"),
        (None, ["b"], "query wants one string, found None"),
    ],
)
def test_a_ranking_wants_a_query_and_a_list_of_documents(query: Any, documents: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        calls.rerank(RANKING, query, documents)


def test_documents_may_be_a_generator() -> None:
    (request,) = calls.rerank(RANKING, "a", (text for text in ("b", "c"))).requests
    assert request["DOCUMENTS"].tolist() == [[b"b", b"c"]]


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ("weather", r"labels wants a list of strings, found one string. Write labels=\[…\]"),
        (["weather", 5], "labels wants a list of strings, found int at entry 1"),
        (5, "a list of strings as labels, found int"),
        ([], "needs the labels"),
        (None, "needs the labels"),
    ],
)
def test_labels_are_a_list_of_strings(labels: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        calls.classify(ZERO_SHOT, ["a"], labels=labels)


def test_labels_may_be_a_generator() -> None:
    (request,) = calls.classify(ZERO_SHOT, "a", labels=(label for label in ("b", "c"))).requests
    assert request["CANDIDATE_LABELS"].tolist() == [[b"b", b"c"]]


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda: calls.rerank(RANKING, "a", ["b"], top_k="3"), "top_k wants a whole number of at least 1, found str"),  # type: ignore[arg-type]
        (lambda: calls.rerank(RANKING, "a", ["b"], top_k=-1), "top_k wants a whole number of at least 1, found -1"),
        (lambda: calls.fill(FILLINGS, "a", top_k=True), "top_k wants a whole number of at least 1, found bool"),
        (lambda: calls.sparse(WEIGHTS, "a", top_k=2.5), "top_k wants .*, found float"),
        (lambda: calls.entities(ENTITIES, "a", stride=b"1"), "stride wants .*, found bytes"),
        (lambda: calls.entities(ENTITIES, "a", ignore="O"), "ignore wants a list of strings, found one string"),
        (lambda: calls.entities(ENTITIES, "a", aggregation=5), "aggregation wants one string, found int"),
        (lambda: calls.answer(SPANS, ("a", "b"), longest=[]), "longest wants .*, found list"),
        (lambda: calls.answer(SPANS, ("a", "b"), no_answer="yes"), "no_answer wants True or False, found str"),
        (lambda: calls.classify(ZERO_SHOT, "a", labels=["b"], multi_label=1), "multi_label wants True or False"),
        (lambda: calls.classify(ZERO_SHOT, "a", labels=["b"], template=5), "template wants one string, found int"),
    ],
)  # fmt: skip
def test_an_option_of_the_wrong_type_is_named(ask: Callable[[], object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        ask()


def test_numbers_of_numpy_are_numbers() -> None:
    (request,) = calls.fill(FILLINGS, "a", top_k=np.int64(3)).requests
    assert request["OPTIONS"].tolist() == [[b'{"top_k": 3}']]


def test_the_wrong_method_is_said_before_the_texts_are_read() -> None:
    with pytest.raises(UsageError, match=r"gives ANSWERS, not EMBEDDING. Use answer"):
        calls.embed(SPANS, 5)


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"url": 8001}, "url wants one string, found int"),
        ({"protocol": ["grpc"]}, "protocol wants one string, found list"),
        ({"timeout_s": "60"}, "timeout_s wants a number above 0, found str"),
        ({"timeout_s": float("nan")}, "timeout_s wants a number above 0, found nan"),
        ({"concurrency": 1.5}, "concurrency wants a whole number of at least 1, found float"),
        ({"retries": None}, "retries wants a whole number of at least 0, found None"),
    ],
)
def test_a_client_of_the_wrong_types_is_refused(kind: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        kind(**options)


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"timeout_s": 0}, "timeout_s wants a number above 0, found 0"),
        ({"headers": "a"}, "headers wants a mapping of strings to strings, found str"),
        ({"headers": {"a": 1}}, "headers wants a mapping of strings to strings, found int in it"),
        ({"request_id": 5}, "request_id wants one string, found int"),
    ],
)
def test_a_view_of_the_wrong_types_is_refused(kind: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        kind("127.0.0.1:1").using(**options)


def test_a_view_without_room_is_refused() -> None:
    with pytest.raises(UsageError, match="concurrency wants a whole number of at least 1, found 0"):
        AsyncClient("127.0.0.1:1").using(concurrency=0)


@pytest.mark.parametrize("name", [None, 5, ["m"], b"m"])
def test_a_name_is_a_string(name: Any) -> None:
    with Client("127.0.0.1:1") as client, pytest.raises(UsageError, match="name wants one string, found"):
        client.embed(name, "a")

    async def asked() -> None:
        async with AsyncClient("127.0.0.1:1") as client:
            await client.embed(name, "a")

    with pytest.raises(UsageError, match="name wants one string, found"):
        asyncio.run(asked())
