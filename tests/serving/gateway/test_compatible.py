"""Clients of other servers work unchanged: TEI's by huggingface_hub, Cohere's own, and plain HTTP as TEI has it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.environments import ROOT, run_in
from tests.serving.gateway.conftest import Tasks
from trimaran.core.small_vectors import RANGES, ranges_from_text

TEXTS = ["the cat sat", "good dog"]


@pytest.fixture(scope="module")
def vectors(tasks: Tasks) -> np.ndarray:
    """As OpenAI's path gives them."""
    said = tasks.gateway.ask("/v1/embeddings", {"model": "embedding", "input": TEXTS}).json
    return np.array([row["embedding"] for row in said["data"]])


def unit(rows: np.ndarray) -> np.ndarray:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def test_the_inference_client_embeds_and_classifies(tasks: Tasks, vectors: np.ndarray) -> None:
    from huggingface_hub import InferenceClient

    url, key = tasks.gateway.url, tasks.gateway.key
    embedder = InferenceClient(f"{url}/embed", token=key)
    np.testing.assert_allclose(embedder.feature_extraction(TEXTS), unit(vectors), atol=1e-6)
    one = embedder.feature_extraction(TEXTS[0], normalize=False, truncate=True)
    np.testing.assert_allclose(one, vectors[:1], atol=1e-6)
    found = InferenceClient(f"{url}/predict", token=key).text_classification("good dog")
    best = tasks.gateway.ask("/classify", {"model": "text-classification", "inputs": "good dog"}).json["results"][0][0]
    assert (found.label, found.score) == (best["label"], pytest.approx(best["score"]))
    similar = InferenceClient(f"{url}/similarity", token=key).sentence_similarity(TEXTS[0], TEXTS)
    np.testing.assert_allclose(similar, unit(vectors) @ unit(vectors)[0], atol=1e-6)


def test_the_shapes_are_those_of_tei(tasks: Tasks) -> None:
    def ask(path: str, **body: object) -> object:
        answer = tasks.gateway.ask(path, body)
        assert answer.status == 200, answer.body
        return answer.json

    (labels,), (pair,) = ask("/predict", inputs=[["good dog"]]), ask("/predict", inputs=[["good", "dog"]])
    assert labels == ask("/predict", inputs="good dog") and pair == ask("/predict", inputs=["good", "dog"])
    assert {label["label"] for label in labels} == {label["label"] for label in pair} and labels != pair
    ranked = ask("/rerank", query="cat", texts=TEXTS, return_text=True, truncate=True)
    ours = ask("/rerank", query="cat", documents=TEXTS)["results"]
    assert [(row["index"], row["score"], row["text"]) for row in ranked] == [
        (row["index"], row["relevance_score"], TEXTS[row["index"]]) for row in ours
    ]
    ((first, *_),) = ask("/embed_sparse", inputs="good dog")
    assert set(first) == {"index", "value"} and first["value"] > 0
    (tokens,) = ask("/tokenize", inputs="the cat", model="embedding")
    inner = [token for token in tokens if not token["special"]]
    assert [token["text"].removeprefix("##") for token in inner] == [
        "the cat"[token["start"] : token["stop"]] for token in inner
    ]
    assert (inner[0]["text"], inner[-1]["stop"], len(tokens)) == ("the", 7, len(inner) + 2)
    (bare,) = ask("/tokenize", inputs="the cat", model="embedding", add_special_tokens=False)
    assert bare == inner
    said = tasks.gateway.ask("/info").json
    assert said["model_id"] == "embedding" and "embedding" in said["model_type"] and said["auto_truncate"]
    assert set(said["models"]) == set(tasks.artifacts)


def test_every_kind_of_cohere_vector_comes_of_one_pass(tasks: Tasks, vectors: np.ndarray) -> None:
    """The small ones are those of sentence-transformers' `quantize_embeddings`, with the ranges of the manifest."""
    from sentence_transformers.util import quantize_embeddings

    kinds = ["float", "int8", "uint8", "binary", "ubinary"]
    body = {"model": "embedding", "texts": TEXTS, "input_type": "search_document", "embedding_types": kinds}
    found = tasks.gateway.ask("/v2/embed", body).json
    assert (found["response_type"], found["texts"], list(found["embeddings"])) == ("embeddings_by_type", TEXTS, kinds)
    assert found["meta"]["billed_units"]["input_tokens"] == found["usage"]["prompt_tokens"] > 0
    np.testing.assert_allclose(found["embeddings"]["float"], vectors, atol=1e-6)
    floats = np.asarray(found["embeddings"]["float"], np.float32)
    ranges = ranges_from_text(tasks.artifacts["embedding"].details[RANGES])
    for kind in kinds[1:]:
        wanted = quantize_embeddings(floats, precision=kind, ranges=ranges)
        np.testing.assert_array_equal(found["embeddings"][kind], wanted, err_msg=kind)
    plain = tasks.gateway.ask("/v2/embed", {"model": "embedding", "texts": TEXTS, "output_dimension": 8}).json
    assert list(plain["embeddings"]) == ["float"]
    np.testing.assert_allclose(plain["embeddings"]["float"], unit(vectors[:, :8]), atol=1e-6)


def test_what_cannot_be_given_is_refused(tasks: Tasks) -> None:
    for path, body in {
        "/predict": {"inputs": "good dog", "raw_scores": True},
        "/rerank": {"query": "cat", "texts": TEXTS, "documents": TEXTS},
        "/v2/rerank": {"query": "cat", "documents": [{"title": "no text"}]},
        "/v2/embed": {"model": "embedding", "texts": TEXTS, "truncate": "NONE"},
    }.items():
        assert tasks.gateway.ask(path, body).status == 422


def test_an_unknown_model_is_told_which_there_are(tasks: Tasks) -> None:
    refused = tasks.gateway.ask("/v1/embeddings", {"model": "nothing", "input": "the cat"})
    assert refused.status == 404
    wanted = "There is no such model for embedding or hybrid-embedding. There is: embedding, hybrid-embedding."
    assert refused.json["error"]["message"] == wanted


@pytest.mark.slow
def test_coheres_client_ranks_and_embeds(tasks: Tasks, vectors: np.ndarray) -> None:
    """The client of Cohere, both versions, in an environment that has it."""
    script = ROOT / "tests" / "environments" / "in_cohere.py"
    said = json.loads(run_in("recipes", script, tasks.gateway.url, tasks.gateway.key).splitlines()[-1])
    wanted = tasks.gateway.ask("/rerank", {"query": "cat", "documents": TEXTS}).json["results"]
    ranked = [[row["index"], pytest.approx(row["relevance_score"])] for row in wanted]
    floats, bits = said.pop("float"), said.pop("ubinary")
    assert said == {"v1": ranked, "v2": ranked}
    np.testing.assert_allclose(floats, vectors, atol=1e-6)
    np.testing.assert_array_equal(bits, np.packbits(vectors > 0, axis=1))
