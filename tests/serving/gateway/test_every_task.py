"""Every task through both clients and through the gateway: the answers that the same graph gives in process."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.export.exported import answering
from tests.serving.gateway.conftest import Tasks
from tests.serving.triton.every_task import CONTEXT, LABELS, MASKED, WORDS
from tests.serving.triton.test_every_task import assert_alike
from trimaran import AsyncClient, Client
from trimaran.core.errors import RequestFailed, UsageError
from trimaran.core.tasks import TASKS

MANY = [*WORDS, "a", "b c", "d e f g"] * 2
QUESTION = ("What is green?", CONTEXT)


class Waiting:
    """The asynchronous client asked as the other is, so that one test speaks of both."""

    def __init__(self, url: str, protocol: Any) -> None:
        self._runner = asyncio.Runner()
        self._client = self._runner.run(self._made(url, protocol))

    async def _made(self, url: str, protocol: Any) -> AsyncClient:
        return AsyncClient(url, protocol=protocol)

    def __getattr__(self, method: str) -> Callable[..., Any]:
        return lambda *given, **options: self._runner.run(getattr(self._client, method)(*given, **options))

    def end(self) -> None:
        self._runner.run(self._client.close())
        self._runner.close()


@pytest.fixture(params=["sync-grpc", "sync-http", "async-grpc", "async-http"])
def client(request: pytest.FixtureRequest, tasks: Tasks) -> Iterator[Any]:
    kind, protocol = request.param.split("-")
    url = tasks.server.grpc_url if protocol == "grpc" else tasks.server.http_url
    if kind == "sync":
        with Client(url, protocol=protocol) as connected:
            yield connected
        return
    waiting = Waiting(url, protocol)
    yield waiting
    waiting.end()


def in_process(tasks: Tasks, task: str, items: Any, **options: Any) -> list[Any]:
    """Each item alone, so that what a batch changes would be seen."""
    served = answering(tasks.artifacts[task])
    return [TASKS[task].served.answer(served, [item], **options)[0] for item in items]


def pairs(answers: Any) -> list[Any]:
    return [[(item["label"], item["score"]) for item in answer] for answer in answers]


def test_embed(client: Any, tasks: Tasks) -> None:
    mixed = [*MANY, ("one", "two"), "three", ("four", "five six")]
    found = client.embed("embedding", mixed)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, np.stack(in_process(tasks, "embedding", mixed)), atol=1e-5)
    assert client.embed("embedding", []).shape == (0, found.shape[1])


def test_classify(client: Any, tasks: Tasks) -> None:
    wanted = pairs(in_process(tasks, "text-classification", MANY))
    for mine, theirs in zip(client.classify("text-classification", MANY), wanted, strict=True):
        assert [label for label, _ in mine] == [label for label, _ in theirs]
        np.testing.assert_allclose([score for _, score in mine], [score for _, score in theirs], atol=1e-5)


def test_classify_with_labels_of_the_callers(client: Any, tasks: Tasks) -> None:
    options = {"labels": LABELS, "template": "About {}", "multi_label": True}
    found = client.classify("zero-shot-classification", MANY, **options)
    for mine, theirs in zip(found, in_process(tasks, "zero-shot-classification", MANY, **options), strict=True):
        assert [label for label, _ in mine] == theirs["labels"]
        np.testing.assert_allclose([score for _, score in mine], theirs["scores"], atol=1e-5)


def test_entities(client: Any, tasks: Tasks) -> None:
    long = [" ".join(WORDS[:1] * 12), *MANY]
    options = {"aggregation": "max", "stride": 16}
    assert_alike(
        client.entities("token-classification", long, **options),
        in_process(tasks, "token-classification", long, **options),
    )


def test_answer(client: Any, tasks: Tasks) -> None:
    asked = [("Where?", CONTEXT), QUESTION, ("Who?", "Nobody.")] * 2
    options = {"top_k": 3, "no_answer": True, "longest": 5, "stride": 8}
    assert_alike(
        client.answer("question-answering", asked, **options),
        in_process(tasks, "question-answering", asked, **options),
    )


def test_fill(client: Any, tasks: Tasks) -> None:
    texts = [MASKED, "nothing", "[MASK]"] * 3
    assert_alike(client.fill("fill-mask", texts, top_k=2), in_process(tasks, "fill-mask", texts, top_k=2))


WORDS_BY_LABEL = {"one": ["the", "again"], "two": ["and"]}
TEMPLATE = "{} It is the {mask} ."


def test_classify_by_label_words_and_fill_with_targets(client: Any, tasks: Tasks) -> None:
    options = {"label_words": WORDS_BY_LABEL, "template": TEMPLATE}
    found = client.classify("fill-mask", MANY, **options)
    for mine, theirs in zip(found, pairs(in_process(tasks, "fill-mask", MANY, **options)), strict=True):
        assert [label for label, _ in mine] == [label for label, _ in theirs]
        np.testing.assert_allclose([score for _, score in mine], [score for _, score in theirs], atol=1e-5)
    asked = {"targets": ["the", "and", "of"], "template": TEMPLATE, "top_k": 2}
    assert_alike(client.fill("fill-mask", MANY, **asked), in_process(tasks, "fill-mask", MANY, **asked))
    with pytest.raises(RequestFailed, match="'pizza' is 5 tokens"):
        client.fill("fill-mask", "[MASK]", targets=["pizza"])
    with pytest.raises(UsageError, match="for zero-shot models"):
        client.classify("fill-mask", "a", label_words=WORDS_BY_LABEL, labels=["a"])
    with pytest.raises(UsageError, match="gives LABELS, SCORES, not FILLINGS"):
        client.classify("text-classification", "a", label_words=WORDS_BY_LABEL)


def test_rerank_of_more_documents_than_a_request_holds(client: Any, tasks: Tasks) -> None:
    documents = [f"{WORDS[number % 3]} {number}" for number in range(300)]
    wanted = in_process(tasks, "rerank", [("weather", documents)])[0]
    found = client.rerank("rerank", "weather", documents)
    assert sorted(index for index, _ in found) == list(range(300))
    scores = {item["index"]: item["score"] for item in wanted}
    np.testing.assert_allclose([score for _, score in found], [scores[index] for index, _ in found], atol=1e-5)
    assert all(first >= second for (_, first), (_, second) in itertools.pairwise(found))
    assert client.rerank("rerank", "weather", documents, top_k=5) == found[:5]
    assert client.rerank("rerank", "weather", []) == []


def test_tokens(client: Any, tasks: Tasks) -> None:
    found = client.tokens("feature-extraction", MANY)
    for mine, theirs in zip(found, in_process(tasks, "feature-extraction", MANY), strict=True):
        assert mine.tokens == list(theirs["tokens"])
        np.testing.assert_allclose(mine.vectors, theirs["token_embeddings"], atol=1e-5)


def test_score_is_late_interaction_in_client_and_gateway(client: Any, tasks: Tasks) -> None:
    from trimaran.core.late_interaction import maximum_similarities

    query, *documents = (row["token_embeddings"] for row in in_process(tasks, "feature-extraction", MANY))
    wanted = maximum_similarities(query, documents)
    np.testing.assert_allclose(client.score("feature-extraction", MANY[0], MANY[1:]), wanted, rtol=1e-4)
    answered = tasks.gateway.ask("/score", {"query": MANY[0], "documents": list(MANY[1:])})
    np.testing.assert_allclose(answered.json["results"], wanted, rtol=1e-4)


def test_sparse(client: Any, tasks: Tasks) -> None:
    found = client.sparse("sparse-embedding", MANY, top_k=4)
    for mine, theirs in zip(found, in_process(tasks, "sparse-embedding", MANY, top_k=4), strict=True):
        assert mine.ids.tolist() == [item["token"] for item in theirs]
        assert mine.tokens == [item["token_str"] for item in theirs]
        np.testing.assert_allclose(mine.weights, [item["weight"] for item in theirs], atol=1e-5)


def test_the_wrong_method_and_a_wrong_option_are_named(client: Any) -> None:
    with pytest.raises(UsageError, match=r"gives EMBEDDING, not LABELS.*Use embed"):
        client.classify("embedding", ["a"])
    with pytest.raises(UsageError, match="needs the labels"):
        client.classify("zero-shot-classification", ["a"])
    with pytest.raises(UsageError, match="single texts, found tuple"):
        client.fill("fill-mask", [("a", "b")])
    with pytest.raises(UsageError, match="surrogates not allowed"):
        client.embed("embedding", ["\ud800"])
    with pytest.raises(RequestFailed, match="Unknown aggregation 'sum'"):
        client.entities("token-classification", ["a"], aggregation="sum")
    with pytest.raises(RequestFailed, match=r"no model 'nowhere'.*embedding"):
        client.embed("nowhere", ["a"])


ALONE: dict[str, tuple[Any, ...]] = {
    "embed": ("embedding", WORDS[0]),
    "classify": ("text-classification", WORDS[0]),
    "entities": ("token-classification", WORDS[0]),
    "answer": ("question-answering", ("Where?", "Ada lived in London.")),
    "fill": ("fill-mask", MASKED),
    "tokens": ("feature-extraction", WORDS[0]),
    "sparse": ("sparse-embedding", WORDS[0]),
    "query": ("embedding", WORDS[0]),
}


@pytest.mark.parametrize("method", ALONE)
def test_one_text_gets_one_answer_and_a_list_a_list(client: Any, method: str) -> None:
    name, text = ALONE[method]
    alone, listed = getattr(client, method)(name, text), getattr(client, method)(name, [text])
    assert len(listed) == 1
    assert_alike(numbers_as_lists(alone), numbers_as_lists(listed[0]))


def numbers_as_lists(answer: Any) -> Any:
    if isinstance(answer, np.ndarray):
        return answer.tolist()
    return [numbers_as_lists(part) for part in answer] if isinstance(answer, (list, tuple)) else answer


def ask(tasks: Tasks, path: str, **body: Any) -> Any:
    found = tasks.gateway.ask(path, body)
    assert found.status == 200, found.body
    assert found.json.get("usage", {"prompt_tokens": 1})["prompt_tokens"] > 0
    return found.json


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/rerank", {"query": "a", "documents": "a stone"}),
        ("/rerank", {"query": ["a"], "documents": ["a stone"]}),
        ("/classify", {"inputs": "a", "labels": "food", "model": "zero-shot-classification"}),
        ("/classify", {"inputs": [["a", "b", "c"]], "model": "text-classification"}),
        ("/answer", {"question": "a", "context": ["b"]}),
        ("/fill", {"inputs": ["a", 5]}),
        ("/entities", {"inputs": [["a", "b"]]}),
        ("/encode", {"texts": "abc"}),
    ],
    ids=repr,
)
def test_gateway_refuses_a_string_for_a_list_and_a_list_for_a_string(tasks: Tasks, path: str, body: Any) -> None:
    assert tasks.gateway.ask(path, body).status == 422


def test_gateway_classifies(tasks: Tasks) -> None:
    found = ask(tasks, "/classify", inputs=MANY, model="text-classification")["results"]
    assert_alike(found, in_process(tasks, "text-classification", MANY))


def test_gateway_classifies_by_the_callers_labels(tasks: Tasks) -> None:
    body = {"inputs": list(WORDS), "labels": LABELS, "model": "zero-shot-classification"}
    wanted = in_process(tasks, "zero-shot-classification", WORDS, labels=LABELS)
    found = ask(tasks, "/classify", **body)["results"]
    assert [[item["label"] for item in row] for row in found] == [row["labels"] for row in wanted]
    refused = tasks.gateway.ask("/classify", {"inputs": "a", "model": "zero-shot-classification"})
    assert (refused.status, refused.json["error"]["param"]) == (422, "labels")
    bad = tasks.gateway.ask("/classify", {**body, "template": "always"})
    assert (bad.status, "template" in bad.json["error"]["message"]) == (422, True)


def test_gateway_finds_entities(tasks: Tasks) -> None:
    found = ask(tasks, "/entities", inputs=MANY, aggregation="first")["results"]
    assert_alike(found, in_process(tasks, "token-classification", MANY, aggregation="first"))


def test_gateway_answers(tasks: Tasks) -> None:
    question, context = QUESTION
    found = ask(tasks, "/answer", question=question, context=context, top_k=2)["answers"]
    assert_alike(found, in_process(tasks, "question-answering", [QUESTION], top_k=2)[0])
    bad = tasks.gateway.ask("/answer", {"question": "why " * 100, "context": "b"})
    assert (bad.status, "no room" in bad.json["error"]["message"]) == (422, True)


def test_gateway_fills(tasks: Tasks) -> None:
    found = ask(tasks, "/fill", inputs=[MASKED, "nothing"], top_k=2)["results"]
    assert_alike(found, in_process(tasks, "fill-mask", [MASKED, "nothing"], top_k=2))


def test_gateway_classifies_by_label_words(tasks: Tasks) -> None:
    options = {"label_words": WORDS_BY_LABEL, "template": TEMPLATE}
    found = ask(tasks, "/classify", inputs=list(MANY), **options)["results"]
    assert_alike(found, in_process(tasks, "fill-mask", MANY, **options))
    asked = {"targets": ["the", "and"], "template": TEMPLATE}
    assert_alike(
        ask(tasks, "/fill", inputs=list(MANY), **asked)["results"], in_process(tasks, "fill-mask", MANY, **asked)
    )
    bad = tasks.gateway.ask("/classify", {"inputs": ["a"], "label_words": {"one": ["pizza"]}, "template": TEMPLATE})
    assert (bad.status, "is 5 tokens" in bad.json["error"]["message"]) == (422, True)
    assert tasks.gateway.ask("/classify", {"inputs": ["a"], "label_words": {"one": []}}).status == 422


def test_gateway_reranks(tasks: Tasks) -> None:
    wanted = in_process(tasks, "rerank", [("weather", list(WORDS))])[0]
    found = ask(tasks, "/rerank", query="weather", documents=list(WORDS), top_n=2, return_documents=True)["results"]
    assert [item["index"] for item in found] == [item["index"] for item in wanted[:2]]
    assert [item["document"] for item in found] == [WORDS[item["index"]] for item in found]
    np.testing.assert_allclose(
        [item["relevance_score"] for item in found], [item["score"] for item in wanted[:2]], atol=1e-5
    )


def test_gateway_encodes_as_bert_as_service_did(tasks: Tasks) -> None:
    found = ask(tasks, "/encode", id="x", texts=["one ||| two", WORDS[1]], unknown=1)
    assert (found["id"], found["status"]) == ("x", 200)
    wanted = in_process(tasks, "embedding", [("one", "two"), WORDS[1]])
    np.testing.assert_allclose(found["result"], np.stack(wanted), atol=1e-5)
    tokens = ask(tasks, "/encode", id=1, texts=[["the", "park"], ["one", "|||", "two"]], is_tokenized=True)
    wanted = in_process(tasks, "embedding", ["the park", ("one", "two")])
    np.testing.assert_allclose(tokens["result"], np.stack(wanted), atol=1e-5)
    mixed = tasks.gateway.ask("/encode", {"texts": ["a", ["b"]]})
    assert (mixed.status, mixed.json["error"]["param"]) == (422, "texts")


def test_the_openai_client_reads_every_kind_of_answer(tasks: Tasks) -> None:
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=f"{tasks.gateway.url}/v1", api_key=tasks.gateway.key, max_retries=0) as client:
        found = client.embeddings.create(model="embedding", input=list(WORDS))
        wanted = np.stack(in_process(tasks, "embedding", WORDS))
        np.testing.assert_allclose([item.embedding for item in found.data], wanted, atol=1e-5)
        plain = client.embeddings.create(model="embedding", input=WORDS[0], encoding_format="float", dimensions=4)
        assert len(plain.data[0].embedding) == 4
        assert {model.id for model in client.models.list().data} == set(tasks.artifacts)
        with pytest.raises(openai.NotFoundError):
            client.embeddings.create(model="nowhere", input="a")
        with pytest.raises(openai.UnprocessableEntityError):
            client.embeddings.create(model="embedding", input=[])
    with openai.OpenAI(base_url=f"{tasks.gateway.url}/v1", api_key="wrong", max_retries=0) as stranger:
        with pytest.raises(openai.AuthenticationError):
            stranger.models.list()


def test_choose(client: Any, tasks: Tasks) -> None:
    wanted = in_process(tasks, "multiple-choice", [("weather", list(WORDS))])[0]
    found = client.choose("multiple-choice", "weather", WORDS)
    assert [index for index, _ in found] == [entry["index"] for entry in wanted]
    np.testing.assert_allclose([score for _, score in found], [entry["score"] for entry in wanted], atol=1e-5)
    assert sum(score for _, score in found) == pytest.approx(1.0, abs=1e-5)
    with pytest.raises(UsageError, match="2 to 1024 strings, found 1"):
        client.choose("multiple-choice", "weather", ["one"])


def test_follows(client: Any, tasks: Tasks) -> None:
    asked = [(WORDS[0], text) for text in MANY]
    np.testing.assert_allclose(
        client.follows("next-sentence", asked), in_process(tasks, "next-sentence", asked), atol=1e-5
    )
    assert client.follows("next-sentence", asked[0]) == pytest.approx(
        client.follows("next-sentence", asked)[0], abs=1e-5
    )
