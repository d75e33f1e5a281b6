"""Traces by the W3C's `traceparent` header, from the caller to Triton; spans are sent if there is a collector."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

from trimaran.core.errors import UnavailableError, install_hint

TRACEPARENT = "traceparent"
# A collector that does not answer must not delay the shutdown.
_EXPORT_S = 2
_VALID = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


class Trace:
    """Of one request: the headers for Triton, the id for the log, and the span if there is one."""

    def __init__(self, traceparent: str = "", span: Any = None) -> None:
        self.traceparent = traceparent
        self._span = span

    @property
    def headers(self) -> dict[str, str]:
        return {TRACEPARENT: self.traceparent} if self.traceparent else {}

    @property
    def trace_id(self) -> str:
        return self.traceparent[3:35]

    def note(self, **facts: str | int | float) -> None:
        if self._span is not None:
            self._span.set_attributes(facts)


class Tracer:
    """Without a collector, the caller's own `traceparent` is sent on unchanged."""

    def __init__(self, endpoint: str = "", *, exporter: Any = None) -> None:
        self._tracer: Any = None
        self._provider: Any = None
        if endpoint or exporter is not None:
            self._provider = _provider(endpoint, exporter)
            self._tracer = self._provider.get_tracer("trimaran.serving.gateway")

    @contextlib.contextmanager
    def request(self, route: str, sent: str) -> Iterator[Trace]:
        traceparent = sent if _VALID.fullmatch(sent) else ""
        if self._tracer is None:
            yield Trace(traceparent)
            return
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        propagator = TraceContextTextMapPropagator()
        parent = propagator.extract({TRACEPARENT: traceparent}) if traceparent else None
        with self._tracer.start_as_current_span(route, context=parent, kind=SpanKind.SERVER) as span:
            carrier: dict[str, str] = {}
            propagator.inject(carrier)
            yield Trace(carrier.get(TRACEPARENT, ""), span)

    def close(self) -> None:
        if self._provider is not None:
            self._provider.shutdown()


def _provider(endpoint: str, exporter: Any) -> Any:
    try:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        if exporter is None:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

            exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces", timeout=_EXPORT_S)
    except ImportError as error:
        raise UnavailableError(f"Sending traces needs OpenTelemetry: {error}.", hint=install_hint("otel")) from error
    provider = TracerProvider(resource=Resource.create({"service.name": "trimaran-gateway"}))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider
