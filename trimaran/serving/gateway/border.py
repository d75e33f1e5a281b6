"""What surrounds every request: its id, its key, its trace, its log line, and the response that an error becomes."""

from __future__ import annotations

import logging
import math
import re
import time
import traceback
import uuid
from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trimaran.serving.gateway import reading
from trimaran.serving.gateway.call import Call
from trimaran.serving.gateway.json_bytes import to_json
from trimaran.serving.gateway.refusals import Refusal, refusal_from, unauthorized
from trimaran.serving.gateway.tracing import TRACEPARENT

if TYPE_CHECKING:
    from trimaran.serving.gateway.app import Gateway

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")
_LOGGED_METHODS = ("GET", "POST", "OPTIONS")
_COMMON_HEADERS = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))
# The status in the access log of a request whose caller hung up; nobody receives it.
_HUNG_UP = 499
log = logging.getLogger(__name__)


class Observed:
    """The outermost layer: gives a request its Call, a response its common headers, and notes how it ended."""

    def __init__(self, app: ASGIApp, *, gateway: Gateway, paths: frozenset[str]) -> None:
        self._app = app
        self._gateway = gateway
        self._paths = paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.monotonic()
        gateway = self._gateway
        headers = dict(scope["headers"])
        # No text of a caller may get into metrics and logs, so an unknown path is not named there.
        route = scope["path"] if scope["path"] in self._paths else "unmatched"
        sent_id = headers.get(b"x-request-id", b"")
        request_id = sent_id.decode() if _REQUEST_ID.fullmatch(sent_id) else uuid.uuid4().hex
        call = Call(gateway, request_id, headers, began + gateway.settings.timeouts.answer_s, address=_address(scope))
        status, size = _HUNG_UP, 0

        async def send_observed(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] += [(b"x-request-id", request_id.encode()), *_COMMON_HEADERS]
            else:
                size += len(message.get("body", b""))
            await send(message)

        with gateway.tracer.request(route, headers.get(TRACEPARENT.encode(), b"").decode("latin-1")) as trace:
            call.triton_headers = trace.headers
            # Starlette's router raises its errors only inside an application, and otherwise answers in plain text.
            scope.update(app=gateway, call=call)
            try:
                await self._app(scope, receive, send_observed)
            except Exception as error:
                _log_fault(call, error)
            trace.note(**{"http.response.status_code": status, "trimaran.texts": call.texts})
        seconds = time.monotonic() - began
        gateway.metrics.note(route, status, seconds, call)
        gateway.access_log.write(
            id=request_id,
            method=scope["method"] if scope["method"] in _LOGGED_METHODS else "other",
            route=route,
            status=status,
            milliseconds=round(seconds * 1e3, 3),
            queue_milliseconds=round(call.queue_s * 1e3, 3),
            key=call.caller,
            client=call.address,
            model=call.model,
            version=call.version,
            texts=call.texts,
            tokens=call.tokens,
            bytes=size,
            trace=trace.trace_id,
        )


class KeyRequired:
    """Checks the caller's key and rate before routing: without a key every path gives the same answer."""

    def __init__(self, app: ASGIApp, *, gateway: Gateway, open_paths: frozenset[str]) -> None:
        self._app = app
        self._gateway = gateway
        self._open_paths = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in self._open_paths:
            self._admit(scope)
        await self._app(scope, receive, send)

    def _admit(self, scope: Scope) -> None:
        """Raises Refusal (401, 429)."""
        gateway = self._gateway
        call: Call = scope["call"]
        if gateway.keys is None:
            gateway.rates.take(call.address)
            return
        sent = [value for name, value in scope["headers"] if name == b"authorization"]
        scheme, _, secret = b"".join(sent).partition(b" ")
        key = gateway.keys.find(secret.strip())
        # Of two headers, a proxy may have read the other one.
        if key is None or scheme.lower() != b"bearer" or len(sent) > 1:
            raise unauthorized()
        call.caller, call.text_rate = key.name, key.text_rate
        gateway.rates.take(key.name, key.rate)


class Cors(CORSMiddleware):
    """Starlette's, but a preflight request is answered by 204 without a body."""

    def preflight_response(self, request_headers: Headers) -> Response:
        response = super().preflight_response(request_headers)
        if response.status_code != 200:
            return response
        headers = {name: value for name, value in response.headers.items() if not name.startswith("content-")}
        return Response(status_code=204, headers=headers)


class RefusalResponse(Response):
    """Closes the connection after a body that was not read, but not before the caller could read the refusal."""

    media_type = "application/json"

    def __init__(self, refusal: Refusal, call: Call, *, headers: dict[str, str], unread: bool) -> None:
        super().__init__(to_json(refusal.body(call.request_id)), refusal.status, headers)
        self._unread = unread
        if unread:
            self.headers["connection"] = "close"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._unread:
            await super().__call__(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        await reading.linger(receive)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def response_from_error(request: Request, error: Exception) -> Response:
    """The one place where an exception becomes a status."""
    call: Call = request.scope["call"]
    if isinstance(error, ClientDisconnect):
        return Response(status_code=_HUNG_UP)
    refusal = refusal_from(error)
    if refusal is None:
        _log_fault(call, error)
        refusal = Refusal(500, "internal", "The gateway failed. Its log has the request id.")
    headers = dict(getattr(error, "headers", None) or {})
    if refusal.retry_after_s is not None:
        headers["retry-after"] = str(max(1, math.ceil(refusal.retry_after_s)))
    if refusal.status == 401:
        headers["www-authenticate"] = "Bearer"
    has_body = b"content-length" in call.request_headers or b"transfer-encoding" in call.request_headers
    return RefusalResponse(refusal, call, headers=headers, unread=has_body and not call.body_was_read)


def _log_fault(call: Call, error: Exception) -> None:
    # The message of a foreign error may quote a text of the caller. The traceback does not.
    frames = "".join(traceback.format_tb(error.__traceback__))
    log.error("Request %s failed with %s\n%s", call.request_id, type(error).__name__, frames)


def _address(scope: Scope) -> str:
    return str((scope.get("client") or ("",))[0])
