"""Metrics for Prometheus: requests, times, queue, refusals. No label comes from a caller."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trimaran.serving.client import AsyncClient
from trimaran.serving.gateway.admission import Admission
from trimaran.serving.gateway.catalogue import Catalogue

if TYPE_CHECKING:
    from trimaran.serving.gateway.call import Call

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


def joined(pages: Mapping[int, bytes]) -> bytes:
    """One exposition of those of several workers. Each sample gets a label with the number of its worker."""
    heads: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for worker, page in pages.items():
        family = ""
        for line in page.decode().splitlines():
            if line.startswith("# HELP "):
                family = line.split(" ", 3)[2]
                heads[family] = []
            if line.startswith("#"):
                heads[family].append(line)
                continue
            name, brace, rest = line.partition("{")
            if not brace:
                name, _, rest = line.partition(" ")
            label = f'{{worker="{worker}"'
            samples.setdefault(family, []).append(f"{name}{label}{',' if brace else '} '}{rest}")
    lines = [line for family, head in heads.items() for line in (*head, *samples.get(family, ()))]
    return ("\n".join(lines) + "\n").encode()


class Metrics:
    def __init__(self, admission: Admission, catalogue: Catalogue, client: AsyncClient) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        self._catalogue = catalogue
        self._client = client
        # By metric and labels.
        self._children: dict[tuple[Any, ...], Any] = {}
        self._registry = registry = CollectorRegistry()
        prefix = "trimaran_gateway"
        self._requests = Counter(
            f"{prefix}_requests", "Requests answered or refused.", ["route", "status"], registry=registry
        )
        self._seconds = Histogram(
            f"{prefix}_request_seconds", "From the head to the answer.", ["route"], buckets=_SECONDS, registry=registry
        )
        self._queued = Histogram(f"{prefix}_queue_seconds", "Waiting for a turn.", buckets=_SECONDS, registry=registry)
        self._texts = Counter(f"{prefix}_texts", "Texts asked about.", ["model"], registry=registry)
        self._tokens = Counter(f"{prefix}_tokens", "Tokens asked about.", ["model"], registry=registry)
        self._truncated = Counter(
            f"{prefix}_truncated_texts", "Texts longer than the model reads.", ["model"], registry=registry
        )
        self.lost_log_lines = Counter(
            f"{prefix}_lost_log_lines", "Lines of the access log that could not be written.", registry=registry
        )
        self._ready = Gauge(
            f"{prefix}_model_ready", "1 when a model answered its last canary.", ["model"], registry=registry
        )
        self._version = Gauge(
            f"{prefix}_model_version",
            "The version that answers, as a number; the label is the digest of its files.",
            ["model", "digest"],
            registry=registry,
        )
        self._replicas = {
            name: Gauge(f"{prefix}_replica_{name}", help_text, ["replica"], registry=registry)
            for name, help_text in (
                ("ready", "1 when this Triton answered when it was last looked at."),
                ("outstanding", "Requests that this Triton has not answered yet."),
                ("requests", "Requests that were sent to this Triton since it was child."),
            )
        }
        Gauge(f"{prefix}_queue_length", "Requests waiting.", registry=registry).set_function(lambda: admission.waiting)
        Gauge(f"{prefix}_texts_in_flight", "Texts that Triton has.", registry=registry).set_function(
            lambda: admission.in_flight
        )

    def note(self, route: str, status: int, seconds: float, call: Call) -> None:
        self._labelled(self._requests, route, str(status)).inc()
        self._labelled(self._seconds, route).observe(seconds)
        if call.model:
            self._labelled(self._texts, call.model).inc(call.texts)
            self._labelled(self._tokens, call.model).inc(call.tokens)
            self._labelled(self._truncated, call.model).inc(call.truncated)
            self._queued.observe(call.queue_s)

    def _labelled(self, metric: Any, *labels: str) -> Any:
        """Kept, because finding it takes longer than counting."""
        key = (metric, *labels)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = metric.labels(*labels)
        return child

    def exposition(self) -> bytes:
        from prometheus_client import generate_latest

        for gauge in (self._ready, self._version, *self._replicas.values()):
            gauge.clear()
        for served in self._catalogue.models:
            self._ready.labels(served.name).set(served.name not in self._catalogue.silent)
            release = self._client.release_in_use(served.name)
            self._version.labels(served.name, release.digest if release else "").set(served.version)
        for replica in self._client.replicas:
            facts = {"ready": replica.reachable, "outstanding": replica.outstanding, "requests": replica.given}
            for name, value in facts.items():
                self._replicas[name].labels(replica.address).set(value)
        return bytes(generate_latest(self._registry))
