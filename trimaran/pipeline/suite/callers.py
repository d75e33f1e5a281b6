"""Callers of a live server, inside the child process that makes the load."""

from __future__ import annotations

import http
import json
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from trimaran.benchmarks.scenarios import loadgen
from trimaran.benchmarks.scenarios.loadgen import AskText, Load
from trimaran.core.errors import NotReady, RequestFailed, ServerError, UsageError
from trimaran.judging.probe import read_texts
from trimaran.runtime.text import Text

if TYPE_CHECKING:
    from trimaran.serving.client import Model
    from trimaran.serving.client.question import Ask

_TIMEOUT_S = 30.0
_PIECE = 1 << 16
_MODEL_INFER = "/inference.GRPCInferenceService/ModelInfer"
# What the gateway is asked for each task that it answers one text at a time.
GATEWAY_PATHS: dict[str, tuple[str, str]] = {
    "embedding": ("/v1/embeddings", "input"),
    "text-classification": ("/classify", "inputs"),
    "token-classification": ("/entities", "inputs"),
    "fill-mask": ("/fill", "inputs"),
}


class ServerCallers:
    """Lives in a child process: arguments and results are JSON. Each caller has a connection of its own."""

    def __init__(
        self, kind: Literal["triton", "gateway"], url: str, wire: str, model: str, task: str, texts_path: str, key: str
    ) -> None:
        self._texts = read_texts(Path(texts_path))
        makers: dict[str, Callable[[], AskText]] = {
            "triton": lambda: triton_caller(url, wire, model, self._texts),
            "gateway": lambda: gateway_caller(url, model, task, self._texts, key),
        }
        self._make = makers[kind]
        self._made: list[AskText] = []
        self._asks(1)

    def warm_up(self, calls: int) -> dict[str, Any]:
        """Calls before those that count; their latencies tell what one caller gets through."""
        latencies, failures, dead = [], 0, None
        begun_ns = time.perf_counter_ns()
        for index in range(calls):
            asked_ns = time.perf_counter_ns()
            try:
                self._asks(1)[0](index % len(self._texts))
            except ServerError as error:
                failures, dead = failures + 1, str(error)
                break
            latencies.append(time.perf_counter_ns() - asked_ns)
        return Load(
            elapsed_ns=time.perf_counter_ns() - begun_ns, latencies_ns=tuple(latencies), failures=failures, dead=dead
        ).model_dump()

    def single_stream(self, samples: int, time_s: float, limit_s: float) -> dict[str, Any]:
        try:
            load = loadgen.single_stream(
                self._asks(1)[0], texts=len(self._texts), samples=samples, time_s=time_s, limit_s=limit_s
            )
        except ServerError as error:
            load = Load(elapsed_ns=0, latencies_ns=(), failures=1, dead=str(error))
        return load.model_dump()

    def offline(self, callers: int) -> dict[str, Any]:
        return loadgen.offline(self._asks(callers), texts=len(self._texts), passes=1).model_dump()

    def closed_loop(self, callers: int, samples: int, time_s: float, limit_s: float) -> dict[str, Any]:
        return loadgen.closed_loop(
            self._asks(callers), texts=len(self._texts), samples=samples, time_s=time_s, limit_s=limit_s
        ).model_dump()

    def open_loop(self, callers: int, rate_per_s: float, samples: int, time_s: float, seed: int) -> dict[str, Any]:
        return loadgen.open_loop(
            self._asks(callers),
            texts=len(self._texts),
            rate_per_s=rate_per_s,
            samples=samples,
            time_s=time_s,
            seed=seed,
        ).model_dump()

    def _asks(self, callers: int) -> list[AskText]:
        while len(self._made) < callers:
            self._made.append(self._make())
        return self._made[:callers]


def triton_caller(url: str, wire: str, model: str, texts: list[Text]) -> AskText:
    """Sends what a user of the client sends, but never retries.

    Requests are made beforehand, and answers are read but not decoded: callers share the machine with the server, and
    their own work would slow it down.
    """
    from trimaran.serving.client import Client

    with Client(url, protocol="grpc" if wire == "grpc" else "http", timeout_s=_TIMEOUT_S, retries=0) as client:
        facts = client.model(model)
    return {"grpc": _triton_grpc, "http": _triton_http}[wire](url, facts, texts)


def _triton_grpc(url: str, facts: Model, texts: list[Text]) -> AskText:
    import grpc

    from trimaran.serving.client import failures
    from trimaran.serving.client.calls import query
    from trimaran.serving.client.endpoint import CHANNEL_ARGUMENTS, endpoint_of

    endpoint = endpoint_of(url, "grpc", timeout_s=_TIMEOUT_S, concurrency=1, retries=0)
    made = [_grpc_request(facts.name, query(facts, [text])) for text in texts]
    channel = (
        grpc.secure_channel(endpoint.address, grpc.ssl_channel_credentials(), CHANNEL_ARGUMENTS)
        if endpoint.secure
        else grpc.insecure_channel(endpoint.address, CHANNEL_ARGUMENTS)
    )
    call = channel.unary_unary(_MODEL_INFER)

    def ask(index: int) -> bytes:
        try:
            return bytes(call(made[index], timeout=_TIMEOUT_S))
        except grpc.RpcError as error:
            status, details = str(error.code()), str(error.details())
            raise failures.from_status(endpoint.address, "grpc", status, details, timeout_s=_TIMEOUT_S) from error

    return ask


def _grpc_request(model: str, ask: Ask[Any]) -> bytes:
    from tritonclient.grpc import service_pb2
    from tritonclient.utils import serialize_byte_tensor

    request = service_pb2.ModelInferRequest(model_name=model)
    for name, array in ask.requests[0].items():
        request.inputs.add(name=name, datatype="BYTES", shape=array.shape)
        request.raw_input_contents.append(serialize_byte_tensor(array).item())
    for name in ask.outputs:
        request.outputs.add(name=name)
    return bytes(request.SerializeToString())


def _triton_http(url: str, facts: Model, texts: list[Text]) -> AskText:
    from trimaran.serving.client.calls import query

    made = [_http_request(query(facts, [text])) for text in texts]
    post = _poster(url)
    return lambda index: post(f"/v2/models/{facts.name}/infer", *made[index])


def _http_request(ask: Ask[Any]) -> tuple[bytes, dict[str, str]]:
    import tritonclient.http as triton

    from trimaran.serving.client.endpoint import infer_arguments

    arguments = infer_arguments(triton, ask.requests[0], ask.outputs)
    body, json_size = triton.InferenceServerClient.generate_request_body(**arguments)
    return body, {"Inference-Header-Content-Length": str(json_size)} if json_size else {}


def gateway_caller(url: str, model: str, task: str, texts: list[Text], key: str) -> AskText:
    if task not in GATEWAY_PATHS:
        raise UsageError(f"The gateway is not measured for {task}.", hint=f"Tasks: {', '.join(GATEWAY_PATHS)}.")
    path, field = GATEWAY_PATHS[task]
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
    made = [json.dumps({"model": model, field: [text]}).encode() for text in texts]
    post = _poster(url)
    return lambda index: post(path, made[index], headers)


def _poster(url: str) -> Callable[[str, bytes, Mapping[str, str]], bytes]:
    """Posts over one connection that is kept open, and made anew when the server closes it.

    The parser is in C: Python's own client takes five times as long, on the cores that the server works on.
    """
    server = urlsplit(url if "://" in url else f"http://{url}")
    link = _Link(server.hostname or "127.0.0.1", server.port, secure=server.scheme == "https")

    def post(path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
        lines = {"Host": server.netloc, "Content-Length": str(len(body)), **headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        try:
            status, answer = link.exchange(f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
        except (OSError, ValueError) as error:
            link.close()
            raise NotReady(f"No server answers at {server.netloc}: {error}.") from error
        if status != http.HTTPStatus.OK:
            raise RequestFailed(f"{server.netloc} refused the request ({status}): {answer[:200].decode()}.")
        return answer

    return post


class _Link:
    """One connection, and the parser's callbacks for the answer that is being read."""

    def __init__(self, host: str, port: int | None, *, secure: bool) -> None:
        self._address, self._secure = (host, port or (443 if secure else 80)), secure
        self._socket: socket.socket | None = None

    def exchange(self, request: bytes) -> tuple[int, bytes]:
        import httptools

        if self._socket is None:
            self._socket = self._opened()
        self._parts: list[bytes] = []
        self._whole = False
        self._parser = parser = httptools.HttpResponseParser(self)
        self._socket.sendall(request)
        while not self._whole:
            received = self._socket.recv(_PIECE)
            if not received:
                raise ConnectionError("the connection was closed before the answer was whole")
            try:
                parser.feed_data(received)
            except httptools.HttpParserError as error:
                raise ValueError(f"what came is no HTTP ({error})") from error
        if not self._lasting:
            self.close()
        return int(parser.get_status_code()), b"".join(self._parts)

    def on_body(self, part: bytes) -> None:
        self._parts.append(part)

    def on_message_complete(self) -> None:
        self._whole = True
        # Asked here, because the parser is reset for the next answer afterwards.
        self._lasting = self._parser.should_keep_alive()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _opened(self) -> socket.socket:
        plain = socket.create_connection(self._address, timeout=_TIMEOUT_S)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not self._secure:
            return plain
        return ssl.create_default_context().wrap_socket(plain, server_hostname=self._address[0])
