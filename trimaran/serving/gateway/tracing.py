"""Traces that begin at a caller and go on to Triton, by the W3C's `traceparent`; spans where a collector is named."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

from trimaran.core.errors import UnavailableError

HEADER = "traceparent"
# A collector that is away must not hold up the end.
_EXPORT_S = 2
_TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


class Trace:
    """One request's: what goes on to Triton, its id for the log, and the span if there is one."""

    def __init__(self, traceparent: str = "", span: Any = None) -> None:
        self.traceparent = traceparent
        self._span = span

    @property
    def headers(self) -> dict[str, str]:
        return {HEADER: self.traceparent} if self.traceparent else {}

    @property
    def trace_id(self) -> str:
        return self.traceparent[3:35]

    def note(self, **facts: str | int | float) -> None:
        if self._span is not None:
            self._span.set_attributes(facts)


class Tracer:
    """Without a collector the caller's own `traceparent` goes on unchanged."""

    def __init__(self, endpoint: str = "", *, exporter: Any = None) -> None:
        self._tracer: Any = None
        self._provider: Any = None
        if endpoint or exporter is not None:
            self._provider = _provider(endpoint, exporter)
            self._tracer = self._provider.get_tracer("trimaran.serving.gateway")

    @contextlib.contextmanager
    def request(self, route: str, given: str) -> Iterator[Trace]:
        traceparent = given if _TRACEPARENT.fullmatch(given) else ""
        if self._tracer is None:
            yield Trace(traceparent)
            return
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        propagator = TraceContextTextMapPropagator()
        parent = propagator.extract({HEADER: traceparent}) if traceparent else None
        with self._tracer.start_as_current_span(route, context=parent, kind=SpanKind.SERVER) as span:
            carrier: dict[str, str] = {}
            propagator.inject(carrier)
            yield Trace(carrier.get(HEADER, ""), span)

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
        raise UnavailableError(
            f"Sending traces wants OpenTelemetry: {error}.", hint="pip install 'trimaran[otel]' -c constraints.txt"
        ) from error
    provider = TracerProvider(resource=Resource.create({"service.name": "trimaran-gateway"}))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider
