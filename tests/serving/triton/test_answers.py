"""Text in, right answers out, from the real Triton over both protocols."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.serving.worlds import TEXTS, by_hand, logits_by_hand, tiny_repository
from tests.tiny import LABELS
from trimaran.core.errors import NotReady, RequestFailed, UsageError
from trimaran.model_repository.check import problems
from trimaran.runtime.text import softmax
from trimaran.serving.client import Client, Protocol
from trimaran.serving.triton.server import Server, launch

MODELS = ("classes", "classes-ov", "vectors", "vectors-ov")
PLAIN = ("classes-ov_openvino", "classes_onnxruntime", "vectors-ov_openvino", "vectors_onnxruntime")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, triton: None) -> Iterator[Server]:
    repository = tiny_repository(tmp_path_factory.mktemp("world"))
    with launch(repository, everything=True, drain=False) as running:
        yield running


@pytest.fixture(params=["grpc", "http"])
def client(request: pytest.FixtureRequest, server: Server) -> Iterator[Client]:
    protocol: Protocol = request.param
    with Client(server.grpc_url if protocol == "grpc" else server.http_url, protocol=protocol) as connected:
        yield connected


def test_what_the_check_passes_triton_loads(server: Server) -> None:
    assert problems(server.repository) == ()
    assert set(server.models) == {*MODELS, *PLAIN}


@pytest.mark.parametrize("name", ["vectors", "vectors-ov"])
def test_vectors_are_those_worked_out_by_hand(client: Client, name: str) -> None:
    found = client.embed(name, TEXTS)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, by_hand(TEXTS), atol=1e-6)


@pytest.mark.parametrize("name", ["classes", "classes-ov"])
def test_labels_come_best_first_with_their_probabilities(client: Client, name: str) -> None:
    wanted = softmax(logits_by_hand(TEXTS))
    for ranking, probabilities in zip(client.classify(name, TEXTS), wanted, strict=True):
        assert [label for label, _ in ranking] == [LABELS[i] for i in np.argsort(-probabilities, kind="stable")]
        np.testing.assert_allclose([score for _, score in ranking], np.sort(probabilities)[::-1], atol=1e-6)


@pytest.mark.parametrize("name", ["vectors", "vectors-ov"])
def test_alone_equals_in_a_batch(client: Client, name: str) -> None:
    together = client.embed(name, TEXTS[:4])
    alone = np.concatenate([client.embed(name, [text]) for text in TEXTS[:4]])
    np.testing.assert_allclose(alone, together, atol=1e-6)


def test_more_texts_than_a_batch_holds_come_back_in_order(client: Client) -> None:
    texts = [TEXTS[i % len(TEXTS)] for i in range(23)]
    np.testing.assert_allclose(client.embed("vectors", texts), by_hand(texts), atol=1e-6)


def test_pairs_and_single_texts_may_be_mixed(client: Client) -> None:
    texts = ["the cat", ("the cat", "dog"), ("dog", ""), "dog", ("bad", "good")]
    read = ["the cat", ("the cat", "dog"), "dog", "dog", ("bad", "good")]
    np.testing.assert_allclose(client.embed("vectors", texts), by_hand(read), atol=1e-6)


def test_query_gives_what_the_model_is_for(client: Client) -> None:
    assert isinstance(client.query("vectors", ["cat"]), np.ndarray)
    assert isinstance(client.query("classes", ["cat"]), list)


def test_no_texts_are_no_answers(client: Client) -> None:
    assert client.embed("vectors", []).shape == (0, 8)
    assert client.classify("classes", []) == []


def test_a_text_longer_than_the_profile_is_cut(client: Client) -> None:
    long = " ".join(["cat"] * 100)
    np.testing.assert_allclose(client.embed("vectors", [long]), by_hand([" ".join(["cat"] * 14)]), atol=1e-6)


def test_nul_and_newlines_are_text(client: Client) -> None:
    np.testing.assert_allclose(client.embed("vectors", ["cat\ndog"]), by_hand(["cat dog"]), atol=1e-6)
    assert client.embed("vectors", ["cat\x00dog"]).shape == (1, 8)


def test_asking_a_classifier_for_vectors_is_a_usage_error(client: Client) -> None:
    with pytest.raises(UsageError, match="LABELS, SCORES, not EMBEDDING"):
        client.embed("classes", ["cat"])


def test_an_unknown_model_is_refused_by_name(client: Client) -> None:
    with pytest.raises(RequestFailed, match=r"no model 'nosuch'.*vectors_onnxruntime"):
        client.embed("nosuch", ["cat"])


def test_a_lone_surrogate_is_refused_before_sending(client: Client) -> None:
    with pytest.raises(UsageError, match="UTF-8"):
        client.embed("vectors", ["\ud800"])


def test_the_models_are_listed(client: Client) -> None:
    assert set(client.models()) == {*MODELS, *PLAIN}


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_no_server_is_said_so(protocol: Protocol) -> None:
    with Client("127.0.0.1:9", protocol=protocol, timeout_s=5) as client:
        with pytest.raises(NotReady, match="trimaran serve"):
            client.embed("vectors", ["cat"])


def infer(server: Server, name: str, data: Any, *, datatype: str = "BYTES", tensor: str = "TEXT") -> Any:
    """A request of tritonclient's own making, past our client's care."""
    import tritonclient.grpc as triton

    entry = triton.InferInput(tensor, data.shape, datatype)
    entry.set_data_from_numpy(data)
    with triton.InferenceServerClient(server.grpc_url) as plain:
        return plain.infer(name, [entry], client_timeout=30)


def texts_of(*texts: bytes) -> Any:
    return np.array([[text] for text in texts], dtype=np.object_)


def test_bad_utf8_fails_its_own_request_and_no_other(server: Server) -> None:
    from concurrent.futures import ThreadPoolExecutor

    from tritonclient.utils import InferenceServerException

    requests = [texts_of(b"the cat"), texts_of(b"\xff\xfe cat")] * 8
    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(infer, server, "vectors", request) for request in requests]
    for index, future in enumerate(futures):
        if index % 2:
            with pytest.raises(InferenceServerException, match="not valid UTF-8") as caught:
                future.result()
            assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"
        else:
            np.testing.assert_allclose(future.result().as_numpy("EMBEDDING"), by_hand(["the cat"]), atol=1e-6)


@pytest.mark.parametrize(
    ("data", "datatype", "tensor", "words"),
    [
        (np.zeros((1, 1), np.int64), "INT64", "TEXT", "data-type"),
        (texts_of(*[b"cat"] * 5), "BYTES", "TEXT", "batch-size must be <= 4"),
        (texts_of(b"cat"), "BYTES", "WORDS", "WORDS"),
        (np.array([[b"a", b"b"]], dtype=np.object_), "BYTES", "TEXT", "shape"),
        (np.empty((0, 1), dtype=np.object_), "BYTES", "TEXT", "got 0"),
    ],
)
def test_a_wrong_request_is_refused_and_the_next_is_answered(
    server: Server, data: Any, datatype: str, tensor: str, words: str
) -> None:
    from tritonclient.utils import InferenceServerException

    with pytest.raises(InferenceServerException, match=words):
        infer(server, "vectors", data, datatype=datatype, tensor=tensor)
    infer(server, "vectors", texts_of(b"cat"))


@pytest.mark.parametrize("name", ["vectors_onnxruntime", "vectors-ov_openvino"])
def test_callers_who_tokenise_get_the_engines_own_tensors(server: Server, name: str) -> None:
    ids = np.array([[2, 4, 5, 3], [2, 6, 3, 0]], np.int64)
    np.testing.assert_allclose(_tensors(server, name, ids, ids != 0), by_hand(["the cat", "dog"]), atol=1e-6)


@pytest.mark.parametrize("name", ["vectors_onnxruntime", "vectors-ov_openvino"])
def test_tensors_that_do_not_fit_each_other_are_refused_and_spoil_no_later_request(server: Server, name: str) -> None:
    ids = np.array([[2, 4, 5, 3]], np.int64)
    for _ in range(2):
        with pytest.raises(Exception, match=r"have one shape, found \(1, 2\), \(1, 4\)"):
            _tensors(server, name, ids, ids[:, :2] != 0)
        np.testing.assert_allclose(_tensors(server, name, ids, ids != 0), by_hand(["the cat"]), atol=1e-6)


def _tensors(server: Server, name: str, ids: Any, mask: Any) -> Any:
    import tritonclient.http as triton

    inputs = []
    for tensor, data in (("input_ids", ids), ("attention_mask", mask.astype(np.int64))):
        entry = triton.InferInput(tensor, data.shape, "INT64")
        entry.set_data_from_numpy(data)
        inputs.append(entry)
    with triton.InferenceServerClient(server.http_url) as plain:
        return plain.infer(name, inputs).as_numpy("embedding")


def test_a_token_beyond_the_vocabulary_is_an_error_and_the_stage_lives(server: Server) -> None:
    import tritonclient.http as triton

    def ask(token: int) -> Any:
        inputs = []
        for tensor in ("input_ids", "attention_mask"):
            entry = triton.InferInput(tensor, (1, 1), "INT64")
            entry.set_data_from_numpy(np.array([[token if tensor == "input_ids" else 1]], np.int64))
            inputs.append(entry)
        with triton.InferenceServerClient(server.http_url) as plain:
            return plain.infer("vectors_onnxruntime", inputs).as_numpy("embedding")

    with pytest.raises(Exception, match=r"out of data bounds|indices element"):
        ask(10_000)
    assert ask(5).shape == (1, 8)
