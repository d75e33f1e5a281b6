"""Triton's HTTP for several threads. Each thread has its own connection, and it is known whether a request was sent."""

from __future__ import annotations

import contextlib
import http.client
import json
import select
import socket
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from trimaran.serving.client import failures
from trimaran.serving.client.endpoint import Endpoint, infer_arguments, library
from trimaran.serving.client.question import NamedTensors


class HttpChannel:
    def __init__(self, endpoint: Endpoint) -> None:
        self._triton = library("http")
        self._address, self._secure = endpoint.address, endpoint.secure
        self._own = threading.local()
        self._opened: list[http.client.HTTPConnection] = []

    def infer(
        self, endpoint: Endpoint, name: str, inputs: NamedTensors, outputs: Sequence[str], *, within_s: float
    ) -> Any:
        client = self._triton.InferenceServerClient
        arguments = infer_arguments(self._triton, inputs, outputs)
        body, json_size = client.generate_request_body(
            **arguments, request_id=endpoint.request_id, priority=endpoint.priority
        )
        headers = (
            {**endpoint.headers, "Inference-Header-Content-Length": str(json_size)} if json_size else endpoint.headers
        )
        response, data = self._send(
            endpoint, f"{_path(endpoint, name)}/infer", body, headers=headers, within_s=within_s
        )
        size = response.headers.get("Inference-Header-Content-Length")
        return client.parse_response_body(data, header_length=int(size) if size else None)

    def config(self, endpoint: Endpoint, name: str, *, within_s: float) -> Any:
        return json.loads(self._send(endpoint, f"{_path(endpoint, name)}/config", within_s=within_s)[1])

    def statistics(self, endpoint: Endpoint, *, within_s: float) -> Any:
        return json.loads(self._send(endpoint, "/v2/models/stats", within_s=within_s)[1])

    def close(self) -> None:
        for connection in self._opened:
            # Closing alone would not wake a thread that waits for an answer.
            with contextlib.suppress(OSError, AttributeError):
                connection.sock.shutdown(socket.SHUT_RDWR)
            connection.close()

    def _send(
        self, endpoint: Endpoint, path: str, body: bytes | None = None, *, headers: Mapping[str, str] | None = None,
        within_s: float,
    ) -> tuple[http.client.HTTPResponse, bytes]:  # fmt: skip
        connection = self._connected(endpoint, within_s)
        try:
            connection.request("GET" if body is None else "POST", path, body=body, headers=dict(headers or {}))
            response = connection.getresponse()
            data = response.read()
        except TimeoutError as error:
            connection.close()
            raise failures.timed_out(endpoint.address, endpoint.timeout_s) from error
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise failures.not_ready(endpoint.address, "http", str(error), sent=True) from error
        if response.status != http.HTTPStatus.OK:
            raise failures.from_status(
                endpoint.address, "http", str(response.status), _reason(data), timeout_s=endpoint.timeout_s
            )
        return response, data

    def _connected(self, endpoint: Endpoint, within_s: float) -> http.client.HTTPConnection:
        """This thread's connection. If the server has closed it, a new one is made before anything is sent."""
        connection: http.client.HTTPConnection | None = getattr(self._own, "connection", None)
        if connection is None:
            kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
            connection = self._own.connection = kind(self._address)
            self._opened.append(connection)
        if connection.sock is not None and select.select([connection.sock], [], [], 0)[0]:
            connection.close()
        connection.timeout = within_s
        try:
            if connection.sock is None:
                connection.connect()
        except TimeoutError as error:
            raise failures.timed_out(endpoint.address, endpoint.timeout_s) from error
        except OSError as error:
            raise failures.not_ready(endpoint.address, "http", str(error), sent=False) from error
        connection.sock.settimeout(within_s)
        return connection


def _path(endpoint: Endpoint, name: str) -> str:
    return f"/v2/models/{name}" + (f"/versions/{endpoint.version}" if endpoint.version else "")


def _reason(data: bytes) -> str:
    with contextlib.suppress(ValueError):
        body = json.loads(data)
        if isinstance(body, dict):
            return str(body.get("error", ""))
    return data[:200].decode("utf-8", "replace")
