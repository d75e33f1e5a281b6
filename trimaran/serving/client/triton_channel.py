"""tritonclient's own channels: gRPC for threads, gRPC and HTTP for asyncio."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trimaran.serving.client.endpoint import CHANNEL_ARGUMENTS, Endpoint, infer_arguments, library
from trimaran.serving.client.question import NamedTensors


class TritonChannel:
    """Methods return results, or awaitables if the channel is for asyncio. Errors are tritonclient's."""

    def __init__(self, endpoint: Endpoint, *, for_asyncio: bool) -> None:
        self._tensors = library(endpoint.protocol)
        self._library = library(f"{endpoint.protocol}.aio") if for_asyncio else self._tensors
        self._grpc = endpoint.protocol == "grpc"
        # A channel for asyncio is made at the first call, because it belongs to the event loop that runs then.
        self._client: Any = None if for_asyncio else self._connect(endpoint)

    def infer(
        self, endpoint: Endpoint, name: str, inputs: NamedTensors, outputs: Sequence[str], *, within_s: float
    ) -> Any:
        arguments = infer_arguments(self._tensors, inputs, outputs)
        return self._connected(endpoint).infer(
            name,
            model_version=endpoint.version,
            request_id=endpoint.request_id,
            priority=endpoint.priority,
            **arguments,
            **self._options(endpoint, within_s),
        )

    def config(self, endpoint: Endpoint, name: str, *, within_s: float) -> Any:
        options = self._options(endpoint, within_s, as_json=True)
        return self._connected(endpoint).get_model_config(name, endpoint.version, **options)

    def statistics(self, endpoint: Endpoint, *, within_s: float) -> Any:
        options = self._options(endpoint, within_s, as_json=True)
        return self._connected(endpoint).get_inference_statistics(**options)

    def close(self) -> Any:
        return None if self._client is None else self._client.close()

    def _options(self, endpoint: Endpoint, within_s: float, **grpc_only: Any) -> dict[str, Any]:
        headers = {"headers": dict(endpoint.headers) or None}
        return {**headers, "client_timeout": within_s, **grpc_only} if self._grpc else headers

    def _connected(self, endpoint: Endpoint) -> Any:
        if self._client is None:
            self._client = self._connect(endpoint)
        return self._client

    def _connect(self, endpoint: Endpoint) -> Any:
        if self._grpc:
            options: dict[str, Any] = {"channel_args": CHANNEL_ARGUMENTS}
        else:
            # The core has a deadline for the whole call. A second one here would end the longer of two views.
            options = {"conn_limit": endpoint.concurrency, "conn_timeout": None}
        return self._library.InferenceServerClient(endpoint.address, ssl=endpoint.secure, **options)
