"""What hostile and broken callers send. Each gets a proper refusal, the gateway stays small, and Triton lives."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from tests.serving.gateway.worlds import Answer, Running
from tests.serving.worlds import by_hand, eventually
from trimaran.serving.triton.server import Server

MEGABYTE = 1 << 20
PATHS = ("/v1/embeddings", "/classify", "/rerank", "/entities", "/answer", "/fill", "/encode")


@pytest.fixture(autouse=True)
def everything_lives_on(server: Server, running: Running) -> Iterator[None]:
    """After each of these, the same Triton and the same gateway give the right answer."""
    yield
    assert server.alive()
    found = running.ask("/v1/embeddings", {"model": "vectors", "input": "the cat"})
    assert found.status == 200, found.body
    np.testing.assert_allclose(found.json["data"][0]["embedding"], by_hand(["the cat"])[0], atol=1e-6)


def refused(found: Answer, status: int) -> str:
    """The code of a refusal, which must have the whole shape of one."""
    assert found.status == status, (found.status, found.body[:300])
    error = found.json["error"]
    assert set(error) == {"message", "type", "param", "code", "request_id"}
    assert error["request_id"] == found.headers["x-request-id"]
    return str(error["code"])


def test_a_body_of_fifty_megabytes_is_refused_and_not_kept(running: Running) -> None:
    before = running.resident_bytes()
    body = b'{"model":"vectors","input":"' + b"a" * (50 * MEGABYTE) + b'"}'
    assert refused(running.ask("/v1/embeddings", body), 413) == "too_large"
    assert running.resident_bytes() - before < 20 * MEGABYTE


def test_fifty_megabytes_without_a_key_are_refused_too(running: Running) -> None:
    assert refused(running.ask("/v1/embeddings", b"a" * (50 * MEGABYTE), key=""), 401) == "invalid_api_key"


def test_a_million_tiny_chunks_are_refused_at_the_first(running: Running) -> None:
    head = (
        f"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {running.key}\r\n"
        "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", running.port), timeout=60) as connection:
        connection.sendall(head.encode())
        chunks = b"1\r\na\r\n" * 10_000
        sent = threading.Thread(target=send_all, args=(connection, chunks, 100))
        sent.start()
        assert connection.recv(4096).startswith(b"HTTP/1.1 411 ")
        sent.join()


def send_all(connection: socket.socket, data: bytes, times: int) -> None:
    """Until it is refused in the middle, as it may be."""
    with contextlib.suppress(OSError):
        for _ in range(times):
            connection.sendall(data)
        connection.sendall(b"0\r\n\r\n")


@pytest.mark.parametrize(
    "kind",
    ["application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain", "", "application/xml"],
)
def test_a_body_that_is_not_declared_as_json_is_refused(running: Running, kind: str) -> None:
    body = b"texts=" + b"a" * (9 * MEGABYTE)
    assert refused(running.ask("/encode", body, headers={"Content-Type": kind}), 415) == "not_json"


def test_a_compressed_body_is_refused(running: Running) -> None:
    import gzip

    body = gzip.compress(json.dumps({"model": "vectors", "input": "a" * 10_000_000}).encode())
    found = running.ask("/v1/embeddings", body, headers={"Content-Encoding": "gzip"})
    assert refused(found, 415) == "compressed"


NOT_JSON = {
    "invalid UTF-8": b'{"model":"vectors","input":"\xff\xfe"}',
    "UTF-16": '{"model":"vectors","input":"a"}'.encode("utf-16"),
    "a lone surrogate": rb'{"model":"vectors","input":"\ud800"}',
    "a reversed pair of surrogates": rb'{"model":"vectors","input":"\udc00\ud800"}',
    "nothing": b"",
    "a bare NUL": b"\x00",
    "an open string": b'{"model":"vectors","input":"',
    "two documents": b"{} {}",
    "a hundred thousand open lists": b"[" * 100_000,
    "a hundred thousand open objects": b'{"a":' * 100_000,
    "deep but closed": b'{"model":"vectors","input":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    "a number without end": b'{"model":"vectors","dimensions":' + b"9" * 1_000_000 + b"}",
}


@pytest.mark.parametrize("body", NOT_JSON.values(), ids=NOT_JSON.keys())
@pytest.mark.parametrize("path", ["/v1/embeddings", "/encode"])
def test_what_is_not_json_is_refused(running: Running, path: str, body: bytes) -> None:
    found = running.ask(path, body)
    assert refused(found, 400 if found.status == 400 else 422) in ("invalid_json", "invalid_value")


WRONG = {
    "a list": [],
    "a number": 1,
    "nothing in it": {},
    "an empty list": {"model": "vectors", "input": []},
    "an empty list of ids": {"model": "vectors", "input": [[]]},
    "no text": {"model": "vectors", "input": None},
    "a number as a text": {"model": "vectors", "input": 5},
    "an object as a text": {"model": "vectors", "input": [{"a": 1}]},
    "true as a text": {"model": "vectors", "input": [True]},
    "texts and ids": {"model": "vectors", "input": ["the", 4]},
    "a fraction as an id": {"model": "vectors", "input": [1.5]},
    "a negative id": {"model": "vectors", "input": [-1]},
    "a huge id": {"model": "vectors", "input": [10**30]},
    "huge dimensions": {"model": "vectors", "input": "a", "dimensions": 10**400},
    "no dimensions": {"model": "vectors", "input": "a", "dimensions": 0},
    "infinite dimensions": b'{"model":"vectors","input":"a","dimensions":1e999}',
    "not a number": b'{"model":"vectors","input":"a","dimensions":NaN}',
    "an unknown format": {"model": "vectors", "input": "a", "encoding_format": "hex"},
    "an unknown field": {"model": "vectors", "input": "a", "inputs": "a"},
    "a model that is a list": {"model": ["vectors"], "input": "a"},
}


@pytest.mark.parametrize("body", WRONG.values(), ids=WRONG.keys())
def test_json_of_the_wrong_kind_is_refused_with_its_place(running: Running, body: object) -> None:
    assert refused(running.ask("/v1/embeddings", body), 422) == "invalid_value"


@pytest.mark.parametrize("path", PATHS)
def test_every_path_refuses_what_it_does_not_know(running: Running, path: str) -> None:
    assert refused(running.ask(path, {"nonsense": 1}), 422) == "invalid_value"


def test_a_million_texts_are_refused(running: Running) -> None:
    found = running.ask("/v1/embeddings", {"model": "vectors", "input": ["a"] * 1_000_000})
    assert refused(found, 413) == "too_large"
    found = running.ask("/encode", {"texts": ["a"] * 1_000_000})
    assert found.status in (413, 422)


def test_a_text_of_a_million_characters_is_refused(running: Running) -> None:
    found = running.ask("/v1/embeddings", {"model": "vectors", "input": "cat " * 250_000})
    assert refused(found, 413) == "too_large"
    assert "characters" in found.json["error"]["message"]


def test_more_tokens_than_the_limit_are_refused(running: Running) -> None:
    ids = [[4] * 2_000_000]
    assert refused(running.ask("/v1/embeddings", {"model": "vectors", "input": ids}), 413) == "too_large"


@pytest.mark.parametrize(
    "text", ["the\x00cat", "\x00", "\x1b[31m", "\u202ecat", "\ufffe", "\U0010ffff", "a\u0300" * 5000, "", " ", "\n"]
)
def test_strange_but_valid_text_is_answered(running: Running, text: str) -> None:
    found = running.ask("/v1/embeddings", {"model": "vectors", "input": text})
    assert found.status == 200
    assert np.isfinite(found.json["data"][0]["embedding"]).all()


def test_no_refusal_repeats_what_was_sent(running: Running) -> None:
    secret = "xyzzy-secret"
    for body in (
        {"model": secret, "input": "a"},
        {"model": "vectors", "input": [{secret: secret}]},
        {secret: secret},
        secret.encode(),
    ):
        found = running.ask("/v1/embeddings", body)
        assert found.status >= 400
        assert secret.encode() not in found.body


def test_texts_are_in_no_log(running: Running) -> None:
    running.ask("/v1/embeddings", {"model": "vectors", "input": "xyzzy the cat"})
    running.ask("/xyzzy?xyzzy=1", headers={"X-Xyzzy": "xyzzy", "X-Request-ID": "xyzzy xyzzy"})
    assert "xyzzy" not in running.log.read_text()
    assert "xyzzy" not in (running.log.parent / "stderr").read_text()


@pytest.mark.parametrize(
    "head",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x00" * 1000,
        b"POST /encode HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        b"POST /encode HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"POST /encode HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /encode HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
    ],
    ids=range(8),
)
def test_what_is_hardly_http_is_refused(running: Running, head: bytes) -> None:
    with socket.create_connection(("127.0.0.1", running.port), timeout=30) as connection:
        connection.sendall(head)
        assert connection.recv(4096)[:10] == b"HTTP/1.1 4"


def test_a_head_without_end_is_cut_off(running: Running) -> None:
    before = running.resident_bytes()
    with socket.create_connection(("127.0.0.1", running.port), timeout=30) as connection:
        said = b""
        with contextlib.suppress(OSError):
            connection.sendall(b"GET /healthz HTTP/1.1\r\n")
            for number in range(100_000):
                connection.sendall(b"X-%d: %s\r\n" % (number, b"a" * 1000))
        with contextlib.suppress(OSError):
            said = connection.recv(100)
    assert said == b"" or said.startswith(b"HTTP/1.1 431 ")
    assert running.resident_bytes() - before < 10 * MEGABYTE


def test_a_request_that_also_asks_for_another_protocol_is_answered(running: Running) -> None:
    headers = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAEAAEAA"}
    found = running.ask("/v1/embeddings", {"model": "vectors", "input": "the cat"}, headers=headers)
    assert found.status == 200, found.body
    np.testing.assert_allclose(found.json["data"][0]["embedding"], by_hand(["the cat"])[0], atol=1e-6)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE"])
def test_another_method_is_not_allowed(running: Running, method: str) -> None:
    found = running.ask("/v1/embeddings", method=method)
    assert found.status == 405
    assert found.headers["allow"] == "POST"


def test_a_caller_who_hangs_up_is_noted_and_harms_nobody(running: Running) -> None:
    body = json.dumps({"model": "vectors", "input": ["the cat sat"] * 2000}).encode()
    head = (
        f"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nX-Request-ID: hangs-up\r\nAuthorization: Bearer {running.key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    for sent in (body, body[:100]):
        with socket.create_connection(("127.0.0.1", running.port), timeout=30) as connection:
            connection.sendall(head.encode() + sent)

    def outcomes() -> list[int]:
        return [line["status"] for line in running.log_lines() if line["id"] == "hangs-up"]

    assert eventually(lambda: len(outcomes()) == 2)
    assert 499 in outcomes()
    assert eventually(lambda: b"trimaran_gateway_texts_in_flight 0.0" in running.ask("/metrics").body)


def test_a_thousand_idle_connections_hold_nobody_up(running: Running) -> None:
    idle = [socket.create_connection(("127.0.0.1", running.port), timeout=30) for _ in range(1000)]
    try:
        for connection in idle[::2]:
            connection.sendall(b"POST /encode HTTP/1.1\r\nX-Slow: ")
        found = running.ask("/v1/embeddings", {"model": "vectors", "input": "the cat"})
        assert found.status == 200
        # Those that send nothing, or the same head for ever, are closed after the time for a head.
        assert eventually(lambda: all(closed(connection) for connection in idle), within_s=60)
    finally:
        for connection in idle:
            connection.close()


def closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
