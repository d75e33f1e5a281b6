"""Triton's gRPC for several threads, over one channel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from trimaran.serving.client import failures
from trimaran.serving.client.calls import Tensors
from trimaran.serving.client.endpoint import CHANNEL_ARGUMENTS, Place, infer_arguments, library


class GrpcChannel:
    def __init__(self, place: Place) -> None:
        self._triton = library("grpc")
        self._client = self._triton.InferenceServerClient(
            place.address, ssl=place.secure, channel_args=CHANNEL_ARGUMENTS
        )

    def infer(self, place: Place, name: str, inputs: Tensors, outputs: Sequence[str], *, within_s: float) -> Tensors:
        arguments = infer_arguments(self._triton, inputs, outputs)
        result = self._translated(
            place, self._client.infer, name, request_id=place.request_id, client_timeout=within_s, **arguments
        )
        return {output: result.as_numpy(output) for output in outputs}

    def config(self, place: Place, name: str, *, within_s: float) -> Any:
        found = self._translated(place, self._client.get_model_config, name, as_json=True, client_timeout=within_s)
        return found["config"]

    def index(self, place: Place, *, within_s: float) -> Any:
        return self._translated(place, self._client.get_model_repository_index, as_json=True, client_timeout=within_s)

    def close(self) -> None:
        self._client.close()

    def _translated(self, place: Place, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        from tritonclient.utils import InferenceServerException

        try:
            return function(*arguments, headers=dict(place.headers) or None, **options)
        except InferenceServerException as error:
            status, message = str(error.status() or ""), str(error.message())
            raise failures.from_status(place.address, "grpc", status, message, timeout_s=place.timeout_s) from error
