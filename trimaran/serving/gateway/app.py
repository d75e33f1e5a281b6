"""The gateway as an ASGI application on Starlette: its parts, its routes, and the layers around them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from trimaran.core.choices import MOST_TEXTS
from trimaran.core.errors import TrimaranError
from trimaran.core.remote_repository import RemoteRepository
from trimaran.serving.client import AsyncClient
from trimaran.serving.client.hedging import Hedge
from trimaran.serving.gateway import metrics, page, reading, swagger
from trimaran.serving.gateway.access_log import AccessLog
from trimaran.serving.gateway.admission import Admission, MemoryBudget, OwnBuckets, RateLimiter
from trimaran.serving.gateway.border import Cors, KeyRequired, Observed, response_from_error
from trimaran.serving.gateway.call import Call, Reply
from trimaran.serving.gateway.catalogue import Catalogue
from trimaran.serving.gateway.json_bytes import to_json
from trimaran.serving.gateway.keys import Keys
from trimaran.serving.gateway.messages import RequestBody
from trimaran.serving.gateway.openapi import description
from trimaran.serving.gateway.routes import ROUTES, GatewayRoute
from trimaran.serving.gateway.settings import GatewaySettings
from trimaran.serving.gateway.shared import SharedState
from trimaran.serving.gateway.tracing import Tracer

_JSON = "application/json"
_OPEN_PAGES = ("/", "/openapi.json")
_PUBLISH_EVERY_S = 1.0
# A gateway that begins accepts connections when it knows the models, or after this time.
_FIRST_LOOK_S = 3.0
log = logging.getLogger(__name__)


class Gateway:
    """Everything that lives as long as the gateway does."""

    def __init__(self, settings: GatewaySettings, shared: SharedState | None = None) -> None:
        """`shared` is what it has in common with the other workers of one gateway."""
        self.settings = settings
        self._shared = shared
        timeouts = settings.timeouts
        self.keys = Keys(settings.keys) if settings.keys else None
        self.client = AsyncClient(
            settings.triton_servers,
            protocol=settings.triton_protocol,
            timeout_s=timeouts.answer_s,
            concurrency=settings.in_flight,
            hedge=Hedge(),
        )
        self.catalogue = Catalogue(
            self.client,
            settings.repository,
            timeout_s=max(5.0, timeouts.queue_s),
            remote=RemoteRepository(settings.remote, settings.repository) if settings.remote else None,
        )
        self.admission = Admission(capacity=settings.in_flight, queue=settings.queue, patience_s=timeouts.queue_s)
        # Large requests are tokenised in threads, no more of them at a time than there are cores.
        cores = len(os.sched_getaffinity(0))
        self.counting = Admission(
            capacity=max(1, cores // settings.workers), queue=settings.queue, patience_s=timeouts.queue_s
        )
        self.bodies = MemoryBudget(settings.limits.all_bodies_bytes)
        buckets = shared.buckets if shared else OwnBuckets()
        self.rates = RateLimiter(settings.rate, buckets=buckets)
        self.text_rates = RateLimiter(settings.text_rate, "texts", buckets=buckets)
        self.metrics = metrics.Metrics(self.admission, self.catalogue, self.client)
        self.access_log = AccessLog(settings.access_log, on_lost_line=self.metrics.lost_log_lines.inc)
        self.tracer = Tracer(settings.otlp_endpoint)

    @contextlib.asynccontextmanager
    async def lifespan(self, app: object) -> AsyncIterator[None]:
        has_looked = asyncio.Event()
        tasks = [asyncio.create_task(self._watch_models(has_looked)), asyncio.create_task(self._publish_metrics())]
        # Callers wait meanwhile: the socket listens already. Without this, a new worker would answer them with 503.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(has_looked.wait(), _FIRST_LOOK_S)
        yield
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.client.close()
        self.tracer.close()
        self.access_log.close()

    def exposition(self) -> bytes:
        """The metrics of the gateway, with a label for the worker where there are several."""
        if self._shared is None:
            return self.metrics.exposition()
        self._shared.metrics.write(self.metrics.exposition())
        return metrics.joined(self._shared.metrics.read())

    async def _publish_metrics(self) -> None:
        """Any worker may be asked for the metrics of all."""
        while self._shared is not None:
            self._shared.metrics.write(self.metrics.exposition())
            await asyncio.sleep(_PUBLISH_EVERY_S)

    async def _watch_models(self, has_looked: asyncio.Event) -> None:
        while True:
            try:
                try:
                    await self.catalogue.refresh()
                finally:
                    has_looked.set()
                answering = sum(replica.reachable for replica in self.client.replicas)
                self.admission.resize(self.settings.in_flight * max(1, answering))
                await self.catalogue.send_canaries()
            except TrimaranError as error:
                log.warning("Triton does not answer: %s", type(error).__name__)
            except Exception:
                log.exception("Watching the models failed")
            await asyncio.sleep(self.settings.canary_s if self.catalogue.ready else min(1.0, self.settings.canary_s))


def application(gateway: Gateway) -> ASGIApp:
    """The layers, from the outside: log and metrics, CORS, errors, keys, routes."""
    # Starlette tries one route after the other, so the busy paths come first.
    routes = [_route(row.path, row.method, AnswerEndpoint(row)) for row in ROUTES.values()]
    routes += _pages(gateway)
    open_paths = frozenset({*_OPEN_PAGES, *swagger.pages(), *(row.path for row in ROUTES.values() if row.is_open)})
    if gateway.settings.open_metrics:
        open_paths |= {"/metrics"}
    app: ASGIApp = Router(
        routes,
        redirect_slashes=False,
        lifespan=gateway.lifespan,
        middleware=[Middleware(KeyRequired, gateway=gateway, open_paths=open_paths)],
    )
    app = ExceptionMiddleware(app, handlers={HTTPException: response_from_error, Exception: response_from_error})
    if gateway.settings.cors:
        app = Cors(
            app,
            allow_origins=gateway.settings.cors,
            allow_methods=("GET", "POST"),
            allow_headers=("authorization", "content-type", "x-request-id", "traceparent"),
        )
    return Observed(app, gateway=gateway, paths=frozenset(route.path for route in routes))


class AnswerEndpoint:
    """One row of the table as an ASGI application, without the wrappers that Starlette puts around a function."""

    def __init__(self, row: GatewayRoute) -> None:
        self._row = row

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        call: Call = scope["call"]
        call.tasks = self._row.tasks
        if self._row.request is None:
            reply = await self._row.handle(call, None)
        else:
            reply = await self._reply_to_body(self._row.request, call, Request(scope, receive))
        facts = {"x-model-version": call.version, "x-truncated-texts": str(call.truncated or "")}
        headers = {name: value for name, value in facts.items() if value}
        response = Response(to_json(reply), media_type=_JSON, headers=headers)
        await response(scope, receive, send)

    async def _reply_to_body(self, schema: type[RequestBody], call: Call, request: Request) -> Reply:
        settings = call.gateway.settings
        limit, within_s = settings.limits.body_bytes, settings.timeouts.body_s
        size = reading.body_size(call.request_headers, limit=limit)
        # The body and what is made of it are in memory until the answer is there.
        with call.gateway.bodies.holding(size, call.account):
            body = await reading.body_of(request, within_s=within_s)
            call.body_was_read = True
            within_s = settings.timeouts.answer_s
            call.deadline = time.monotonic() + within_s
            # Token ids are the most values of a request that can be answered.
            most_values = settings.limits.tokens + MOST_TEXTS
            work = self._row.handle(call, reading.parsed(schema, body, most_values=most_values))
            return await reading.while_connected(request, work, within_s=within_s)


def _pages(gateway: Gateway) -> list[Route]:
    """The paths that are not in the table: the page to try the gateway, its description, and the metrics."""
    openapi = to_json(description(keys=gateway.keys is not None))

    async def try_it(request: Request) -> Response:
        return Response(page.html(), media_type="text/html", headers=page.headers())

    async def describe(request: Request) -> Response:
        return Response(openapi, media_type=_JSON)

    async def measure(request: Request) -> Response:
        return Response(gateway.exposition(), media_type=metrics.CONTENT_TYPE)

    async def swagger_page(request: Request) -> Response:
        shown = swagger.pages()[request.url.path]
        return Response(shown.content, media_type=shown.media_type, headers=swagger.HEADERS)

    pages = {
        "/": try_it,
        "/openapi.json": describe,
        "/metrics": measure,
        **dict.fromkeys(swagger.pages(), swagger_page),
    }
    return [_route(path, "GET", endpoint) for path, endpoint in pages.items()]


def _route(path: str, method: str, endpoint: Callable[..., Awaitable[Any]]) -> Route:
    route = Route(path, endpoint, methods=[method])
    # Starlette adds HEAD to every GET. The gateway answers exactly the methods that it describes.
    route.methods = {method}
    return route
