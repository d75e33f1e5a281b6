"""The layouts with the engine as a model of its own, which a GPU needs, served here with the engines of a CPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.serving.worlds import TEXTS, by_hand, logits_by_hand
from tests.tiny import LABELS, tiny_artifact
from trimaran.core.config_pbtxt import config_from_pbtxt, pbtxt_from_config
from trimaran.core.errors import RequestFailed
from trimaran.model_repository.check import problems
from trimaran.model_repository.layout import lay_out
from trimaran.runtime.text import softmax
from trimaran.serving.client import Client
from trimaran.serving.triton.server import Server, launch


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, triton: None) -> Iterator[Server]:
    """An ensemble, a text stage that calls its engine, and an engine that must not be padded."""
    root = tmp_path_factory.mktemp("layouts")
    classes = tiny_artifact(root / "s", task="text-classification", backend="openvino")
    vectors = tiny_artifact(root / "s")
    for name, artifact, rows in (
        ("vectors", vectors, "padded"),
        ("classes", classes, "padded"),
        ("unpadded", vectors, "equal-length"),
    ):
        lay_out(artifact, repository=root / "r", name=name, rows=rows, threads=1, separate=True)  # type: ignore[arg-type]
    cached(root / "r" / "unpadded" / "config.pbtxt")
    assert problems(root / "r") == ()
    with launch(root / "r", response_cache_bytes=1 << 20, drain=False) as running:
        yield running


def cached(path: Path) -> None:
    """Turns the response cache on, as a user would."""
    config = config_from_pbtxt(path.read_text())
    path.write_text(pbtxt_from_config(config.model_copy(update={"response_cache": True})))


def test_an_ensemble_answers_as_one_model(server: Server) -> None:
    texts = [*TEXTS, ("the cat", "dog")]
    with Client(server.grpc_url) as client:
        np.testing.assert_allclose(client.embed("vectors", texts), by_hand(texts), atol=1e-6)
        assert client.model("vectors").task == "embedding"
    assert {"vectors", "vectors_tokenizer", "vectors_onnxruntime"} <= set(server.models)


def test_a_text_stage_calls_an_engine_that_is_a_model_of_its_own(server: Server) -> None:
    with Client(server.grpc_url) as client:
        found = client.classify("classes", TEXTS)
        np.testing.assert_allclose(client.embed("unpadded", TEXTS), by_hand(TEXTS), atol=1e-6)
    for ranking, probabilities in zip(found, softmax(logits_by_hand(TEXTS)), strict=True):
        assert ranking[0][0] == LABELS[int(probabilities.argmax())]
        np.testing.assert_allclose([score for _, score in ranking], np.sort(probabilities)[::-1], atol=1e-6)


def test_bad_utf8_is_a_sentence_from_the_first_step(server: Server) -> None:
    import tritonclient.grpc as triton

    entry = triton.InferInput("TEXT", [1, 1], "BYTES")
    entry.set_data_from_numpy(np.array([[b"\xff"]], dtype=np.object_))
    with triton.InferenceServerClient(server.grpc_url) as plain, pytest.raises(Exception, match="not valid UTF-8"):
        plain.infer("vectors", [entry])


def test_the_response_cache_answers_the_same_again(server: Server) -> None:
    import tritonclient.http as triton

    with Client(server.grpc_url) as client:
        first, second = (client.embed("unpadded", ["the good cat"]) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    with triton.InferenceServerClient(server.http_url) as plain:
        stats = plain.get_inference_statistics("unpadded")["model_stats"][0]["inference_stats"]
    assert stats["cache_hit"]["count"] >= 1


def test_an_engine_on_demand_can_be_loaded_and_called(server: Server) -> None:
    with Client(server.grpc_url) as client, pytest.raises(RequestFailed, match="serves no model 'nosuch'"):
        client.embed("nosuch", ["cat"])
