"""What a gateway is told at its start."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Literal

from pydantic import Field

from trimaran.core.spec import Frozen


class Limits(Frozen):
    """What one request may hold."""

    body_bytes: int = Field(default=8 << 20, ge=1)
    texts: int = Field(default=2048, ge=1)
    characters: int = Field(default=200_000, ge=1, description="Of one text.")
    tokens: int = Field(default=300_000, ge=1, description="Of all texts, after each is cut to the model's longest.")
    head_bytes: int = Field(default=32 << 10, ge=1024)
    connections: int = Field(default=4096, ge=1)


class Patience(Frozen):
    """Seconds."""

    head_s: float = Field(default=10.0, gt=0, description="For the head of a request, from the connection's start.")
    body_s: float = Field(default=20.0, gt=0)
    queue_s: float = Field(default=5.0, gt=0, description="In the queue before the model is asked.")
    answer_s: float = Field(default=30.0, gt=0, description="For the whole of a request once it is read.")
    idle_s: float = Field(default=30.0, gt=0, description="Between two requests of a connection.")
    drain_s: float = Field(default=20.0, gt=0, description="For requests in flight when the gateway ends.")


class Rate(Frozen):
    """A bucket that fills by `per_s` up to `burst`; each request takes one."""

    per_s: float = Field(gt=0)
    burst: float = Field(ge=1)


class Settings(Frozen):
    """`keys` is None where no key is wanted. `in_flight` counts texts that Triton has at one time."""

    repository: Path
    triton_url: str
    triton_protocol: Literal["grpc", "http"] = "grpc"
    host: str = "127.0.0.1"
    port: int = Field(default=8080, ge=0, le=65535)
    keys: Path | None = None
    limits: Limits = Limits()
    patience: Patience = Patience()
    rate: Rate | None = None
    in_flight: int = Field(default=64, ge=1)
    queue: int = Field(default=512, ge=0)
    canary_s: float = Field(default=5.0, gt=0)
    cors: tuple[str, ...] = ()
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    access_log: Path | None = None
    otlp_endpoint: str = ""

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
