"""Triton's HTTP for several threads: a connection each, a deadline each request, and no doubt about what was sent."""

from __future__ import annotations

import contextlib
import http.client
import json
import select
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from trimaran.serving.client import failures
from trimaran.serving.client.calls import Tensors
from trimaran.serving.client.endpoint import Place, infer_arguments, library


class HttpChannel:
    def __init__(self, place: Place) -> None:
        self._triton = library("http")
        self._address, self._secure = place.address, place.secure
        self._own = threading.local()
        self._opened: list[http.client.HTTPConnection] = []

    def infer(self, place: Place, name: str, inputs: Tensors, outputs: Sequence[str], *, within_s: float) -> Tensors:
        client = self._triton.InferenceServerClient
        arguments = infer_arguments(self._triton, inputs, outputs)
        body, json_size = client.generate_request_body(**arguments, request_id=place.request_id)
        headers = {**place.headers, "Inference-Header-Content-Length": str(json_size)} if json_size else place.headers
        found, data = self._send(place, f"/v2/models/{name}/infer", body, headers=headers, within_s=within_s)
        size = found.headers.get("Inference-Header-Content-Length")
        result = client.parse_response_body(data, header_length=int(size) if size else None)
        return {output: result.as_numpy(output) for output in outputs}

    def config(self, place: Place, name: str, *, within_s: float) -> Any:
        return json.loads(self._send(place, f"/v2/models/{name}/config", within_s=within_s)[1])

    def index(self, place: Place, *, within_s: float) -> Any:
        return json.loads(self._send(place, "/v2/repository/index", b"{}", within_s=within_s)[1])

    def close(self) -> None:
        for connection in self._opened:
            connection.close()

    def _send(
        self, place: Place, path: str, body: bytes | None = None, *, headers: Mapping[str, str] | None = None,
        within_s: float,
    ) -> tuple[http.client.HTTPResponse, bytes]:  # fmt: skip
        connection = self._connected(place, within_s)
        try:
            connection.request("GET" if body is None else "POST", path, body=body, headers=dict(headers or {}))
            response = connection.getresponse()
            data = response.read()
        except TimeoutError as error:
            connection.close()
            raise failures.timed_out(place.address, place.timeout_s) from error
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise failures.not_ready(place.address, "http", str(error), sent=True) from error
        if response.status != http.HTTPStatus.OK:
            raise failures.from_status(
                place.address, "http", str(response.status), _reason(data), timeout_s=place.timeout_s
            )
        return response, data

    def _connected(self, place: Place, within_s: float) -> http.client.HTTPConnection:
        """This thread's connection; one that the server has closed meanwhile is made anew before anything is sent."""
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
            raise failures.timed_out(place.address, place.timeout_s) from error
        except OSError as error:
            raise failures.not_ready(place.address, "http", str(error), sent=False) from error
        connection.sock.settimeout(within_s)
        return connection


def _reason(data: bytes) -> str:
    with contextlib.suppress(ValueError):
        found = json.loads(data)
        if isinstance(found, dict):
            return str(found.get("error", ""))
    return data[:200].decode("utf-8", "replace")
