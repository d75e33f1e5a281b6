"""The gateway as an ASGI application: the one border at which requests come in and every outcome becomes a status."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import re
import time
import traceback
import uuid
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import to_json

from trimaran.core.errors import TrimaranError
from trimaran.serving.client import AsyncClient
from trimaran.serving.gateway import metrics, page, reading
from trimaran.serving.gateway.access_log import AccessLog
from trimaran.serving.gateway.admission import Admission, RateLimiter
from trimaran.serving.gateway.catalogue import Catalogue
from trimaran.serving.gateway.endpoints import Call
from trimaran.serving.gateway.keys import Keys
from trimaran.serving.gateway.openapi import description
from trimaran.serving.gateway.reading import Gone, Receive
from trimaran.serving.gateway.refusals import Refusal, from_error, unauthorized
from trimaran.serving.gateway.routes import ROUTES
from trimaran.serving.gateway.settings import Settings
from trimaran.serving.gateway.tracing import HEADER as TRACEPARENT
from trimaran.serving.gateway.tracing import Tracer

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = dict[bytes, bytes]
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")
_JSON = b"application/json"
_GONE = 499
_OPEN_PAGES = ("/", "/openapi.json")
_UNMATCHED = "unmatched"
log = logging.getLogger(__name__)


@dataclass
class Response:
    status: int
    body: bytes
    headers: Headers = field(default_factory=dict)
    unread: bool = False


class Gateway:
    """Everything that lives as long as the gateway does. Made inside the event loop, in `start`."""

    def __init__(self, settings: Settings, *, tracer: Tracer | None = None) -> None:
        self.settings = settings
        patience = settings.patience
        self.keys = Keys(settings.keys) if settings.keys else None
        self.client = AsyncClient(
            settings.triton_url,
            protocol=settings.triton_protocol,
            timeout_s=patience.answer_s,
            concurrency=settings.in_flight,
        )
        self.catalogue = Catalogue(self.client, settings.repository, timeout_s=max(5.0, patience.queue_s))
        self.admission = Admission(capacity=settings.in_flight, queue=settings.queue, patience_s=patience.queue_s)
        self.rates = RateLimiter(settings.rate)
        self.metrics = metrics.Metrics(self.admission, self.catalogue)
        self.access_log = AccessLog(settings.access_log, lost=self.metrics.lost_log_lines.inc)
        self.tracer = tracer or Tracer(settings.otlp_endpoint)
        self._pages = {
            "/openapi.json": (to_json(description(keys=self.keys is not None)), _JSON, {}),
            "/": (page.html(), b"text/html; charset=utf-8", page.headers()),
        }
        self._watch: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._request(scope, receive, send)

    async def start(self) -> None:
        self._watch = asyncio.create_task(self._keep_watch())

    async def stop(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        await self.client.close()
        self.tracer.close()
        self.access_log.close()

    async def _live(self, receive: Receive, send: Send) -> None:
        steps = {"lifespan.startup": self.start, "lifespan.shutdown": self.stop}
        while True:
            kind = (await receive())["type"]
            await steps[kind]()
            await send({"type": f"{kind}.complete"})
            if kind == "lifespan.shutdown":
                return

    async def _keep_watch(self) -> None:
        while True:
            try:
                await self.catalogue.refresh()
                await self.catalogue.sing()
            except TrimaranError as error:
                log.warning("Triton does not answer: %s", type(error).__name__)
            except Exception:
                log.exception("The watch over the models failed")
            await asyncio.sleep(self.settings.canary_s if self.catalogue.ready else min(1.0, self.settings.canary_s))

    async def _request(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.monotonic()
        headers: Headers = dict(scope["headers"])
        path = scope["path"]
        route = path if path in ROUTES or path in self._pages or path == "/metrics" else _UNMATCHED
        given_id = headers.get(b"x-request-id", b"")
        request_id = given_id.decode() if _REQUEST_ID.fullmatch(given_id) else uuid.uuid4().hex
        call = Call(self, request_id, began + self.settings.patience.answer_s)
        with self.tracer.request(route, headers.get(TRACEPARENT.encode(), b"").decode("latin-1")) as trace:
            call.headers = trace.headers
            try:
                response = await self._outcome(scope, headers, receive, call)
            except Gone:
                response = Response(_GONE, b"")
            if response.status != _GONE:
                await self._send(response, headers, receive, send, call)
            trace.note(**{"http.response.status_code": response.status, "trimaran.texts": call.texts})
        seconds = time.monotonic() - began
        self.metrics.note(route, response.status, seconds, call)
        self.access_log.write(
            id=request_id,
            method=scope["method"] if scope["method"] in ("GET", "POST", "OPTIONS") else "other",
            route=route,
            status=response.status,
            milliseconds=round(seconds * 1e3, 3),
            queue_milliseconds=round(call.queue_s * 1e3, 3),
            key=call.caller,
            client=(scope.get("client") or ("",))[0],
            model=call.model,
            texts=call.texts,
            tokens=call.tokens,
            bytes=len(response.body),
            trace=trace.trace_id,
        )

    async def _outcome(self, scope: Scope, headers: Headers, receive: Receive, call: Call) -> Response:
        """Every ending but the caller's own is a response."""
        try:
            return await self._answer(scope, headers, receive, call)
        except Refusal as refusal:
            found = refusal
        except TrimaranError as error:
            found = from_error(error)
        except Gone:
            raise
        except Exception as error:
            # The message of a foreign error may quote what was asked; where it happened does not.
            places = "".join(traceback.format_tb(error.__traceback__))
            log.error("Request %s failed with %s\n%s", call.request_id, type(error).__name__, places)
            found = Refusal(500, "internal", "A fault of the gateway. Its log has the request id.")
        extra: Headers = {}
        if found.retry_after_s is not None:
            extra[b"retry-after"] = str(max(1, math.ceil(found.retry_after_s))).encode()
        if found.status == 401:
            extra[b"www-authenticate"] = b"Bearer"
        if found.status == 405:
            extra[b"allow"] = self._method_of(scope["path"]).encode()
        unread = b"content-length" in headers or b"transfer-encoding" in headers
        return Response(found.status, to_json(found.body(call.request_id)), extra, unread=unread and not call.was_read)

    async def _answer(self, scope: Scope, headers: Headers, receive: Receive, call: Call) -> Response:
        path, method = scope["path"], scope["method"]
        if preflight := self._preflight(headers, method):
            return preflight
        route = ROUTES.get(path)
        if not (path in _OPEN_PAGES or (route and route.open)):
            self._admit(headers, scope, call)
        if route is None and path not in self._pages and path != "/metrics":
            raise Refusal(404, "not_found", "There is nothing at this path.")
        if method != self._method_of(path):
            raise Refusal(405, "method_not_allowed", f"This path takes {self._method_of(path)}.")
        if path in self._pages:
            body, kind, extra = self._pages[path]
            return Response(200, body, {b"content-type": kind, **extra})
        if route is None:
            return Response(200, self.metrics.exposition(), {b"content-type": metrics.CONTENT_TYPE.encode()})
        if route.request is None:
            return Response(200, to_json(await route.handle(call, None)))
        data = await reading.body_of(
            receive, headers, limit=self.settings.limits.body_bytes, within_s=self.settings.patience.body_s
        )
        call.was_read = True
        call.deadline = time.monotonic() + self.settings.patience.answer_s
        reply = await self._while_wanted(receive, route.handle(call, reading.parsed(route.request, data)))
        return Response(200, to_json(reply))

    async def _while_wanted(self, receive: Receive, work: Awaitable[Any]) -> Any:
        """The work's result within the time for an answer; a caller who hangs up ends it, down to Triton's queue."""
        working = asyncio.ensure_future(work)
        leaving = asyncio.ensure_future(reading.gone(receive))
        try:
            await asyncio.wait(
                {working, leaving}, timeout=self.settings.patience.answer_s, return_when=asyncio.FIRST_COMPLETED
            )
            if working.done():
                return working.result()
            if leaving.done():
                raise Gone
            raise Refusal(504, "timeout", "No answer in time. Send fewer texts, or again later.", retry_after_s=1.0)
        finally:
            for task in (working, leaving):
                task.cancel()
            await asyncio.gather(working, leaving, return_exceptions=True)

    def _admit(self, headers: Headers, scope: Scope, call: Call) -> None:
        if self.keys is None:
            self.rates.take((scope.get("client") or ("",))[0])
            return
        kind, _, given = headers.get(b"authorization", b"").partition(b" ")
        key = self.keys.find(given.strip())
        if key is None or kind.lower() != b"bearer":
            raise unauthorized()
        call.caller = key.name
        self.rates.take(key.name, key.rate)

    def _method_of(self, path: str) -> str:
        route = ROUTES.get(path)
        return route.method if route else "GET"

    def _preflight(self, headers: Headers, method: str) -> Response | None:
        if method != "OPTIONS" or b"access-control-request-method" not in headers or not self._origin(headers):
            return None
        return Response(
            204,
            b"",
            {
                b"access-control-allow-methods": b"GET, POST",
                b"access-control-allow-headers": b"authorization, content-type, x-request-id, traceparent",
                b"access-control-max-age": b"600",
            },
        )

    def _origin(self, headers: Headers) -> bytes:
        """The caller's origin, if it is one of those that were allowed."""
        origin = headers.get(b"origin", b"")
        return origin if origin.decode("latin-1") in self.settings.cors else b""

    async def _send(self, response: Response, headers: Headers, receive: Receive, send: Send, call: Call) -> None:
        said: Headers = {
            b"content-type": _JSON,
            b"content-length": str(len(response.body)).encode(),
            b"x-request-id": call.request_id.encode(),
            b"x-content-type-options": b"nosniff",
            b"cache-control": b"no-store",
            **response.headers,
        }
        if call.cut and response.status == 200:
            said[b"x-truncated-texts"] = str(call.cut).encode()
        if self.settings.cors:
            said[b"vary"] = b"Origin"
            if origin := self._origin(headers):
                said[b"access-control-allow-origin"] = origin
        if response.unread:
            said[b"connection"] = b"close"
        if response.status == 204:
            del said[b"content-type"], said[b"content-length"]
        with contextlib.suppress(OSError):
            await send({"type": "http.response.start", "status": response.status, "headers": list(said.items())})
            await send({"type": "http.response.body", "body": response.body, "more_body": response.unread})
            if response.unread:
                await reading.linger(receive)
                await send({"type": "http.response.body", "body": b"", "more_body": False})
