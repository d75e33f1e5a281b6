"""A hybrid model through both clients, the gateway and the command: three outputs of one pass, or those asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.export.exported import answering
from tests.serving.gateway.conftest import Tasks
from tests.serving.gateway.test_every_task import MANY, client, in_process
from trimaran.core.errors import UsageError
from trimaran.core.late_interaction import maximum_similarities

__all__ = ["client"]
NAME = "hybrid-embedding"


@pytest.fixture(scope="module")
def wanted(tasks: Tasks) -> list[Any]:
    return in_process(tasks, NAME, MANY)


def test_all_three_outputs_of_one_pass(client: Any, wanted: list[Any]) -> None:
    answers = client.hybrid(NAME, MANY)
    for answer, theirs in zip(answers, wanted, strict=True):
        np.testing.assert_allclose(answer.dense, theirs["dense"], atol=1e-5)
        assert answer.sparse.ids.tolist() == [entry["token"] for entry in theirs["sparse"]]
        np.testing.assert_allclose(answer.sparse.weights, [e["weight"] for e in theirs["sparse"]], atol=1e-5)
        assert answer.colbert.tokens == theirs["colbert"]["tokens"]
        np.testing.assert_allclose(answer.colbert.vectors, theirs["colbert"]["token_embeddings"], atol=1e-5)


def test_single_outputs_by_the_methods_of_other_models(client: Any, wanted: list[Any]) -> None:
    np.testing.assert_allclose(client.embed(NAME, MANY), [row["dense"] for row in wanted], atol=1e-5)
    some = client.hybrid(NAME, MANY[0], outputs=["sparse"], top_k=2)
    assert some.dense is None and some.colbert is None
    assert some.sparse.ids.tolist() == [entry["token"] for entry in wanted[0]["sparse"][:2]]
    assert client.sparse(NAME, MANY[0]).tokens == [entry["token_str"] for entry in wanted[0]["sparse"]]
    assert client.tokens(NAME, MANY[0]).tokens == wanted[0]["colbert"]["tokens"]
    query, *documents = (row["colbert"]["token_embeddings"] for row in wanted)
    scores = maximum_similarities(query, documents, similarity="meanmaxsim")
    np.testing.assert_allclose(client.score(NAME, MANY[0], MANY[1:]), scores, rtol=1e-4)


def test_pairs_and_unknown_outputs_are_refused(client: Any) -> None:
    with pytest.raises(UsageError, match="single texts, found tuple"):
        client.embed(NAME, [("a", "b")])
    with pytest.raises(UsageError, match="found splade"):
        client.hybrid(NAME, "a", outputs=["splade"])
    with pytest.raises(UsageError, match="not VECTOR_TOKENS"):
        client.hybrid("embedding", "a")


def test_gateway_gives_what_is_asked_for(tasks: Tasks, wanted: list[Any]) -> None:
    body = {"model": NAME, "inputs": list(MANY[:2])}
    results = tasks.gateway.ask("/hybrid", body).json["results"]
    np.testing.assert_allclose([row["dense"] for row in results], [row["dense"] for row in wanted[:2]], atol=1e-5)
    assert [entry["token"] for entry in results[0]["sparse"]] == [entry["token"] for entry in wanted[0]["sparse"]]
    vectors = results[1]["colbert"]["vectors"]
    np.testing.assert_allclose(vectors, wanted[1]["colbert"]["token_embeddings"], atol=1e-5)
    (alone,) = tasks.gateway.ask("/hybrid", {**body, "inputs": MANY[0], "outputs": ["sparse"], "top_k": 1}).json[
        "results"
    ]
    assert set(alone) == {"sparse"} and len(alone["sparse"]) == 1
    assert tasks.gateway.ask("/hybrid", {**body, "outputs": ["splade"]}).status == 422
    assert tasks.gateway.ask("/hybrid", {**body, "model": "embedding"}).status == 404


def test_gateway_gives_single_outputs_on_the_paths_of_other_models(tasks: Tasks, wanted: list[Any]) -> None:
    data = tasks.gateway.ask("/v1/embeddings", {"model": NAME, "input": list(MANY[:2])}).json["data"]
    np.testing.assert_allclose([row["embedding"] for row in data], [row["dense"] for row in wanted[:2]], atol=1e-5)
    (weights,) = tasks.gateway.ask("/embed_sparse", {"model": NAME, "inputs": MANY[0]}).json
    assert [entry["index"] for entry in weights] == [entry["token"] for entry in wanted[0]["sparse"]]
    scores = tasks.gateway.ask("/score", {"model": NAME, "query": MANY[0], "documents": list(MANY[1:3])}).json
    assert len(scores["results"]) == 2
    assert len(answering(tasks.artifacts[NAME]).encoder.encodings(["a"])) == 1
