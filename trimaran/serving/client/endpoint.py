"""The address of a Triton, and the settings of the calls to it."""

from __future__ import annotations

import importlib
import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from trimaran.core.choices import Protocol
from trimaran.core.errors import RequestFailed, UnavailableError, UsageError, install_hint
from trimaran.serving.client import given
from trimaran.serving.client.question import NamedTensors

DEFAULT_URLS: dict[Protocol, str] = {"grpc": "127.0.0.1:8001", "http": "127.0.0.1:8000"}
_SECURE = ("https", "grpcs")

# A server that comes back is found within a second. By default, gRPC's pauses between attempts grow to minutes.
CHANNEL_ARGUMENTS = [
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    # Also how long an attempt to connect may take; a busy machine needs longer than the first pause.
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 1000),
]


@dataclass(frozen=True)
class Endpoint:
    # host:port
    address: str
    protocol: Protocol
    # Whether the connection is encrypted.
    secure: bool
    # For a whole call, with all its requests and retries.
    timeout_s: float
    # The number of requests in flight at a time.
    concurrency: int
    retries: int
    headers: Mapping[str, str] = field(default_factory=dict)
    request_id: str = ""
    # The version of the model that is asked; "" leaves it to Triton, which takes the newest.
    version: str = ""
    # Triton serves level 1 first; 0 is the default of the model.
    priority: int = 0

    def __post_init__(self) -> None:
        given.seconds("timeout_s", self.timeout_s)
        given.count("concurrency", self.concurrency)
        given.count("retries", self.retries, least=0)
        given.headers("headers", self.headers)
        given.string("request_id", self.request_id)

    def using(self, timeout_s: float | None, headers: Mapping[str, str] | None, request_id: str | None) -> Endpoint:
        """The same endpoint with the settings that are not None."""
        return replace(
            self,
            timeout_s=self.timeout_s if timeout_s is None else timeout_s,
            headers=self.headers if headers is None else headers,
            request_id=self.request_id if request_id is None else request_id,
        )


def endpoint_of(
    url: str | Sequence[str], protocol: Protocol, *, timeout_s: float, concurrency: int, retries: int
) -> Endpoint:
    """Several addresses become one text, which stands in messages."""
    if isinstance(url, (list, tuple)):
        endpoints = [
            endpoint_of(address, protocol, timeout_s=timeout_s, concurrency=concurrency, retries=retries)
            for address in url
        ]
        if not endpoints:
            raise UsageError("No address was given.", hint="Give at least one host:port.")
        return replace(endpoints[0], address=",".join(endpoint.address for endpoint in endpoints))
    if given.string("protocol", protocol) not in DEFAULT_URLS:
        raise UsageError(f"Unknown protocol {protocol!r}.", hint="Use grpc or http.")
    scheme, _, rest = (given.string("url", url) or DEFAULT_URLS[protocol]).rpartition("://")
    return Endpoint(rest.rstrip("/"), protocol, scheme in _SECURE, timeout_s, concurrency, retries)


def is_ip_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def library(name: str) -> Any:
    """A module of tritonclient. Raises UnavailableError with the install command."""
    try:
        return importlib.import_module(f"tritonclient.{name}")
    except ImportError as error:
        raise UnavailableError(
            f"Asking a server needs tritonclient with {name}: {error}.",
            hint=install_hint("triton"),
        ) from error


def infer_arguments(triton: Any, inputs: NamedTensors, outputs: Sequence[str]) -> dict[str, Any]:
    """tritonclient's objects for one request, `triton` being its grpc or http module."""
    tensors = []
    for name, array in inputs.items():
        tensor = triton.InferInput(name, array.shape, "BYTES")
        tensor.set_data_from_numpy(array)
        tensors.append(tensor)
    return {"inputs": tensors, "outputs": [triton.InferRequestedOutput(output) for output in outputs]}


def answering_version(result: Any) -> str:
    """The version of the model in a result of tritonclient, of gRPC or HTTP."""
    response = result.get_response()
    return str(response["model_version"] if isinstance(response, dict) else response.model_version)


def ready_versions(statistics: Any) -> dict[str, int]:
    """The models in Triton's statistics, each with its newest version. Only models that are ready have statistics.

    The index of the repository tells the same, but only to those who may also load models.
    """
    return {name: max(versions) for name, versions in loaded_versions(statistics).items()}


def loaded_versions(statistics: Any) -> dict[str, frozenset[int]]:
    """The models in Triton's statistics, each with all its versions that are ready."""
    loaded: dict[str, frozenset[int]] = {}
    for entry in sorted(statistics.get("model_stats", ()), key=lambda entry: str(entry["name"])):
        name = str(entry["name"])
        loaded[name] = loaded.get(name, frozenset()) | {int(entry.get("version") or 1)}
    return loaded


def unknown_model(endpoint: Endpoint, name: str, known: Sequence[str]) -> RequestFailed:
    return RequestFailed(
        f"{endpoint.address} serves no model {name!r}.",
        hint=f"Ready there: {', '.join(known) or 'none'}.",
        status="NOT_FOUND",
    )
