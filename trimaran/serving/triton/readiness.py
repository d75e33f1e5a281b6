"""Whether a Triton really answers: its readiness, and one canary inference per model that must make sense.

Triton's readiness is not enough: a model whose Python stub died, or runs with the wrong numpy, still counts as ready.
"""

from __future__ import annotations

import http.client
import math
from typing import Any

from trimaran.core.errors import NotReady
from trimaran.runtime.shadow import CANARY
from trimaran.serving.triton.control import Address, call, index
from trimaran.serving.triton.ports import HOST

_INTEGERS = ("TYPE_INT64", "TYPE_INT32")
_CANARY_TEXT = "A canary sings in the mine."
_CANARY_TOKENS = 4


def is_ready(port: int, *, timeout_s: float = 2.0) -> bool:
    try:
        status, _ = call(Address(HOST, port), "/v2/health/ready", timeout_s=timeout_s)
    except (OSError, http.client.HTTPException):
        return False
    return status == 200


def loaded_models(address: Address, *, timeout_s: float = 10.0) -> tuple[str, ...]:
    entries = index(address, timeout_s=timeout_s)
    return tuple(sorted({entry.name for entry in entries if entry.state == "READY"}))


def send_canary(port: int, model: str, *, timeout_s: float = 60.0, priority: int | None = None) -> None:
    """Sends one inference; raises NotReady unless the answer is there, finite and not all zeros.

    The error has the `status` where the server answered. A canary with a `priority` does not wait behind callers.
    """
    try:
        status, body = call(Address(HOST, port), f"/v2/models/{model}/config", timeout_s=timeout_s)
        if status == 200:
            request: dict[str, Any] = {"id": CANARY, "inputs": _canary_inputs(body)}
            if priority is not None and "priority_levels" in body.get("dynamic_batching", {}):
                request["parameters"] = {"priority": priority}
            status, body = call(Address(HOST, port), f"/v2/models/{model}/infer", request, timeout_s=timeout_s)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NotReady(f"Model {model} gave no answer to a canary request: {error}.", model=model) from error
    if status != 200:
        reason = body.get("error", "no reason given")
        raise NotReady(
            f"Model {model} refused a canary request (status {status}): {reason}.", model=model, status=status
        )
    for output in body["outputs"]:
        if output["datatype"].startswith("FP") and not _makes_sense(output["data"]):
            raise NotReady(
                f"Model {model} answered a canary request with a senseless {output['name']}: "
                "wanted finite numbers that are not all zero.",
                model=model,
                status=status,
            )


def _canary_inputs(config: dict[str, Any]) -> list[dict[str, Any]]:
    batch = [1] if int(config.get("max_batch_size", 0)) > 0 else []
    inputs = []
    for tensor in config["input"]:
        if tensor.get("optional"):
            continue
        shape = batch + [_CANARY_TOKENS if int(dim) < 0 else int(dim) for dim in tensor["dims"]]
        size = math.prod(shape)
        if tensor["data_type"] == "TYPE_STRING":
            data: list[Any] = [_CANARY_TEXT] * size
        elif tensor["data_type"] in _INTEGERS:
            # Zero is a token of every vocabulary, but an all-zero mask attends to nothing.
            data = [1 if "mask" in tensor["name"] else 0] * size
        else:
            data = [0.5] * size
        datatype = "BYTES" if tensor["data_type"] == "TYPE_STRING" else tensor["data_type"].removeprefix("TYPE_")
        inputs.append({"name": tensor["name"], "shape": shape, "datatype": datatype, "data": data})
    return inputs


def _makes_sense(numbers: list[float]) -> bool:
    """A stub with the wrong numpy answers zeros. An empty answer is fine: a text may have no sparse weights."""
    return not numbers or (all(math.isfinite(value) for value in numbers) and any(numbers))
