"""What callers of every dialect get: the models' own answers, in the shape they know."""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np
import pytest

from tests.homes import home_at
from tests.serving.gateway.worlds import Running, gateway
from tests.serving.worlds import TEXTS, by_hand, logits_by_hand
from tests.tiny import HIDDEN, LABELS, WORDS, tiny_artifact
from trimaran.model_repository.layout import lay_out
from trimaran.runtime.text import softmax
from trimaran.serving.triton.server import launch


def vectors_of(found: object) -> np.ndarray:
    data = found["data"]  # type: ignore[index]
    assert [item["index"] for item in data] == list(range(len(data)))
    return np.asarray([item["embedding"] for item in data])


@pytest.mark.parametrize("name", ["vectors", "vectors-ov"])
def test_embeddings_are_those_worked_out_by_hand(running: Running, name: str) -> None:
    found = running.ask("/v1/embeddings", {"model": name, "input": list(TEXTS)})
    assert found.status == 200, found.body
    assert (found.json["object"], found.json["model"]) == ("list", name)
    np.testing.assert_allclose(vectors_of(found.json), by_hand(TEXTS), atol=1e-6)


def test_one_text_needs_no_list(running: Running) -> None:
    found = running.ask("/v1/embeddings", {"model": "vectors", "input": "the cat"})
    np.testing.assert_allclose(vectors_of(found.json), by_hand(["the cat"]), atol=1e-6)


def test_base64_holds_the_same_numbers(running: Running) -> None:
    body = {"model": "vectors", "input": list(TEXTS)}
    plain = vectors_of(running.ask("/v1/embeddings", body).json)
    coded = running.ask("/v1/embeddings", {**body, "encoding_format": "base64"}).json["data"]
    numbers = [np.frombuffer(base64.b64decode(item["embedding"]), "<f4") for item in coded]
    np.testing.assert_array_equal(np.stack(numbers), plain.astype(np.float32))


def test_dimensions_keep_the_first_numbers(running: Running) -> None:
    found = running.ask("/v1/embeddings", {"model": "vectors", "input": "the cat", "dimensions": 3})
    np.testing.assert_allclose(vectors_of(found.json), by_hand(["the cat"])[:, :3], atol=1e-6)
    refused = running.ask("/v1/embeddings", {"model": "vectors", "input": "the cat", "dimensions": HIDDEN + 1})
    assert (refused.status, refused.json["error"]["param"]) == (422, "dimensions")


def test_binary_vectors_have_eight_dimensions_in_a_byte(running: Running) -> None:
    body = {"model": "vectors", "input": list(TEXTS), "output_dtype": "ubinary"}
    found = vectors_of(running.ask("/v1/embeddings", body).json)
    np.testing.assert_array_equal(found, np.packbits(by_hand(TEXTS) > 0, axis=1))
    refused = running.ask("/v1/embeddings", {**body, "output_dtype": "int8"})
    assert refused.status == 422 and "no ranges for int8" in refused.json["error"]["message"]


def test_a_too_long_text_can_be_the_mean_over_pieces_that_are_read_whole(running: Running) -> None:
    long = "cat " * 12 + "dog " * 12
    body = {"model": "vectors", "input": [long, "the cat"]}
    cut, whole = (running.ask("/v1/embeddings", {**body, "overflow": how}) for how in ("cut", "windows"))
    assert cut.headers["x-truncated-texts"] == "1" and "x-truncated-texts" not in whole.headers
    wanted = np.average(by_hand(["cat " * 12, " dog" * 12]), axis=0, weights=[47, 49])
    np.testing.assert_allclose(vectors_of(whole.json), [wanted, by_hand(["the cat"])[0]], atol=1e-6)


def test_usage_counts_the_tokens_that_the_model_reads(running: Running) -> None:
    found = running.ask("/v1/embeddings", {"model": "vectors", "input": ["the cat", "dog"]})
    assert found.json["usage"] == {"prompt_tokens": 7, "total_tokens": 7}
    assert "x-truncated-texts" not in found.headers
    long = running.ask("/v1/embeddings", {"model": "vectors", "input": ["cat " * 100, "dog"]})
    assert long.json["usage"]["prompt_tokens"] == 16 + 3
    assert long.headers["x-truncated-texts"] == "1"


def test_token_ids_are_read_as_the_text_they_stand_for(running: Running) -> None:
    ids = [WORDS.index(word) for word in ("the", "good", "dog")]
    wanted = by_hand(["the good dog"])
    for given in (ids, [ids], [[2, *ids, 3]]):
        found = running.ask("/v1/embeddings", {"model": "vectors", "input": given})
        np.testing.assert_allclose(vectors_of(found.json), wanted, atol=1e-6)


@pytest.mark.parametrize("ids", [[len(WORDS)], [2**31 - 1], [0, 2, 0]], ids=str)
def test_token_ids_that_no_text_has_are_refused_and_never_guessed(running: Running, ids: list[int]) -> None:
    found = running.ask("/v1/embeddings", {"model": "vectors", "input": ids})
    if found.status == 200:
        np.testing.assert_allclose(vectors_of(found.json), by_hand([" ".join(WORDS[i] for i in ids)]), atol=1e-6)
    else:
        assert (found.status, found.json["error"]["param"]) == (422, "input")


def test_many_texts_come_back_in_their_order(running: Running) -> None:
    texts = [f"{WORDS[4 + index % 7]} {WORDS[4 + index % 5]}" for index in range(300)]
    found = running.ask("/v1/embeddings", {"model": "vectors", "input": texts})
    np.testing.assert_allclose(vectors_of(found.json), by_hand(texts), atol=1e-6)


def test_many_long_texts_get_the_vectors_of_their_beginnings(running: Running) -> None:
    texts = [f"{word} " + "the cat sat " * 16_000 for word in ("dog", "good") * 20]
    found = running.ask("/v1/embeddings", {"model": "vectors", "input": texts})
    assert found.status == 200, found.body
    assert found.headers["x-truncated-texts"] == "40"
    beginnings = [" ".join(text[:200].split()[:14]) for text in texts]
    np.testing.assert_allclose(vectors_of(found.json), by_hand(beginnings), atol=1e-6)


def test_classes_come_best_first(running: Running) -> None:
    found = running.ask("/classify", {"model": "classes", "inputs": [*TEXTS, ["the cat", "sat"]]})
    wanted = softmax(logits_by_hand([*TEXTS, ("the cat", "sat")]))
    for labels, probabilities in zip(found.json["results"], wanted, strict=True):
        assert [item["label"] for item in labels] == [LABELS[i] for i in np.argsort(-probabilities, kind="stable")]
        np.testing.assert_allclose([item["score"] for item in labels], np.sort(probabilities)[::-1], atol=1e-6)
    few = running.ask("/classify", {"model": "classes", "inputs": "the cat", "top_k": 1}).json
    assert [len(labels) for labels in few["results"]] == [1]


def test_models_are_listed_with_their_tasks_and_the_plain_tensors_are_not(running: Running) -> None:
    listed = {item["id"]: item["task"] for item in running.ask("/v1/models").json["data"]}
    assert listed == {
        "vectors": "embedding",
        "vectors-ov": "embedding",
        "classes": "text-classification",
        "classes-ov": "text-classification",
    }


def test_a_model_must_be_named_where_there_are_several(running: Running) -> None:
    found = running.ask("/v1/embeddings", {"input": "the cat"})
    assert (found.status, found.json["error"]["param"]) == (422, "model")


@pytest.mark.parametrize("name", ["nowhere", "classes", "vectors_onnxruntime", "../vectors", "vectors/1", "\x00"])
def test_an_unknown_model_is_not_found(running: Running, name: str) -> None:
    found = running.ask("/v1/embeddings", {"model": name, "input": "the cat"})
    assert (found.status, found.json["error"]["code"]) == (404, "model_not_found")
    assert name not in found.json["error"]["message"]


def test_models_of_separate_stages_are_served_alike(triton: None, tmp_path: Path) -> None:
    """An ensemble has its tokenizer in a stage of its own."""
    for name, rows in (("together", "padded"), ("apart", "alone")):
        lay_out(
            tiny_artifact(tmp_path / "s"), repository=tmp_path / "r", name=name, rows=rows, threads=1, separate=True
        )
    with home_at(tmp_path / "home"):
        with (
            launch(tmp_path / "r", drain=False) as server,
            gateway(tmp_path / "r", server.grpc_url, tmp_path / "g") as started,
        ):
            for name in ("together", "apart"):
                found = started.ask("/v1/embeddings", {"model": name, "input": list(TEXTS)})
                assert found.json["usage"]["prompt_tokens"] > 0
                np.testing.assert_allclose(vectors_of(found.json), by_hand(TEXTS), atol=1e-6)
            assert {item["id"] for item in started.ask("/v1/models").json["data"]} == {"together", "apart"}
