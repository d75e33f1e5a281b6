"""The settings that a gateway starts with."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Literal

from pydantic import Field

from trimaran.core.choices import MOST_TEXTS
from trimaran.core.spec import Frozen
from trimaran.serving.client.endpoint import is_ip_address


class RequestLimits(Frozen):
    """The largest request that is accepted."""

    body_bytes: int = Field(default=8 << 20, ge=1)
    # Of the bodies of all requests that are being read or answered.
    all_bodies_bytes: int = Field(default=256 << 20, ge=1)
    texts: int = Field(default=2048, ge=1, le=MOST_TEXTS)
    # Of one text.
    characters: int = Field(default=200_000, ge=1)
    # Of all texts, after each is cut to the length that the model reads.
    tokens: int = Field(default=300_000, ge=1)
    # Of an answer, as far as it can be known from the request.
    answer_bytes: int = Field(default=256 << 20, ge=1)
    # Request line and headers.
    head_bytes: int = Field(default=32 << 10, ge=1024)
    # Open connections of all callers together.
    connections: int = Field(default=4096, ge=1)


class Timeouts(Frozen):
    """Seconds."""

    # For the request line and headers, from the first byte or the start of the connection.
    head_s: float = Field(default=10.0, gt=0)
    body_s: float = Field(default=20.0, gt=0)
    # In the queue, before the request goes to Triton.
    queue_s: float = Field(default=5.0, gt=0)
    # For the whole request, from the moment its body is read.
    answer_s: float = Field(default=30.0, gt=0)
    # For a caller to take some of an answer that waits to be sent.
    write_s: float = Field(default=20.0, gt=0)
    # Between two requests of one connection.
    idle_s: float = Field(default=30.0, gt=0)
    # For the requests in flight when the gateway shuts down.
    drain_s: float = Field(default=20.0, gt=0)


class RateLimit(Frozen):
    """A token bucket: it fills by `per_s` a second up to `burst`. Each request, or each text, takes one token."""

    per_s: float = Field(gt=0)
    burst: float = Field(ge=1)


class GatewaySettings(Frozen):
    # The model repository that Triton serves; tokenizers are read from it.
    repository: Path
    # Where it is in an object store, such as s3://bucket/models; `repository` is then a copy of its small files.
    remote: str = ""
    # host:port of a Triton, or several with commas. A name is looked up again and again, and may have many addresses.
    triton_url: str
    triton_protocol: Literal["grpc", "http"] = "grpc"
    host: str = "127.0.0.1"
    # 0 picks a free port.
    port: int = Field(default=8080, ge=0, le=65535)
    # The key file, or None when callers need no key.
    keys: Path | None = None
    # Whether /metrics needs no key, for a Prometheus that a network policy lets in.
    open_metrics: bool = False
    limits: RequestLimits = RequestLimits()
    timeouts: Timeouts = Timeouts()
    # Requests of one caller; None means no limit.
    rate: RateLimit | None = None
    # Texts of one caller; None means no limit.
    text_rate: RateLimit | None = None
    # Processes that listen on the port. Limits hold for all of them together: see `workers`.
    workers: int = Field(default=1, ge=1, le=64)
    # The number of texts that each Triton has at one time.
    in_flight: int = Field(default=64, ge=1)
    # The number of requests that may wait.
    queue: int = Field(default=512, ge=0)
    # Seconds between two rounds of canaries.
    canary_s: float = Field(default=5.0, gt=0)
    # Origins whose web pages may call.
    cors: tuple[str, ...] = ()
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    # None means standard error.
    access_log: Path | None = None
    # The OpenTelemetry collector; "" sends no spans.
    otlp_endpoint: str = ""

    @property
    def triton_servers(self) -> str | tuple[str, ...]:
        """One address as it is; several, or a name, as a tuple: these are watched as replicas."""
        urls = tuple(url.strip() for url in self.triton_url.split(",") if url.strip())
        host = self.triton_url.rpartition("://")[2].rpartition(":")[0].strip("[]")
        return urls if len(urls) > 1 or not is_ip_address(host) else self.triton_url

    @property
    def is_loopback(self) -> bool:
        return self.host == "localhost" or (is_ip_address(self.host) and ipaddress.ip_address(self.host).is_loopback)
