"""Triton's control API over HTTP: load and unload models, list them, and read their statistics."""

from __future__ import annotations

import http.client
import json
import time
import uuid
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from trimaran.core.errors import NotReady, RequestFailed
from trimaran.serving.triton.flags import SECRET_HEADER
from trimaran.serving.triton.listeners import listeners, require_own

_LOAD_TIMEOUT_S = 300.0
_ASK_TIMEOUT_S = 5.0
_RESTRICTED_PATH = "/v2/repository/"
# In Triton's queue; configurations that trimaran writes say the same.
LONGEST_WAIT_S = 10.0


class Address(NamedTuple):
    """Where the control API of a Triton is, and what opens it."""

    host: str
    port: int
    # The secret that the server was started with; empty for a server that restricts nothing.
    secret: str = ""


class IndexEntry(NamedTuple):
    """One line of the server's index of models."""

    name: str
    version: str
    # Such as READY; empty for a model that was never loaded.
    state: str
    reason: str


def load(address: Address, model: str, *, timeout_s: float = _LOAD_TIMEOUT_S) -> None:
    """Loads the model, or the versions that its configuration now names. Old versions serve until the new ones do.

    Raises RequestFailed with Triton's reason when it does not load; what was loaded before then stays loaded.
    """
    _ask(address, f"/v2/repository/models/{model}/load", {}, timeout_s=timeout_s)


def replace_instances(
    address: Address, model: str, living: Collection[str], *, timeout_s: float = _LOAD_TIMEOUT_S
) -> None:
    """Starts the instances of a model that are not among `living`, by their names, while the others go on answering.

    Triton starts only those instance groups anew whose settings have changed. So the priority of a group that lacks an
    instance is moved by one. If none does, or the folder of the model has changed, Triton loads the whole model beside
    itself. The next plain `load` takes the configuration of the repository again.
    """
    config = _ask(address, f"/v2/models/{model}/config", None, timeout_s=_ASK_TIMEOUT_S)
    lacking = [group for group in config.get("instance_group", ()) if not set(_instance_names(group)) <= set(living)]
    for group in lacking:
        limiter = group.get("rate_limiter") or {}
        group["rate_limiter"] = {**limiter, "priority": int(limiter.get("priority", 0)) + 1}
    if not lacking:
        config.setdefault("parameters", {})["loaded_again"] = {"string_value": uuid.uuid4().hex}
    body = {"parameters": {"config": json.dumps(config)}}
    _ask(address, f"/v2/repository/models/{model}/load", body, timeout_s=timeout_s)


def unload(address: Address, model: str, *, timeout_s: float = 30.0) -> None:
    _ask(address, f"/v2/repository/models/{model}/unload", {}, timeout_s=timeout_s)


def index(address: Address, *, timeout_s: float = 10.0) -> tuple[IndexEntry, ...]:
    entries = _ask(address, "/v2/repository/index", {}, timeout_s=timeout_s)
    return tuple(IndexEntry(*(str(entry.get(name, "")) for name in IndexEntry._fields)) for entry in entries)


def ready_versions(address: Address, model: str) -> set[str]:
    return {entry.version for entry in index(address) if entry.name == model and entry.state == "READY"}


def switched(
    address: Address, model: str, version: int, *, timeout_s: float = 60.0, drain_s: float = LONGEST_WAIT_S
) -> None:
    """Returns when only this version is loaded.

    Until the other versions are gone, the newest of them is the default. Until they have answered what they were
    asked, they still call other models. After the time that a request may wait they have: Triton unloads a version for
    ever whose stub died with a request in it.
    """
    end = time.monotonic() + timeout_s
    answered: float | None = None
    while True:
        states = {entry.version: entry.state for entry in index(address) if entry.name == model}
        ready = {number for number, state in states.items() if state == "READY"}
        if ready == {str(version)} and "LOADING" not in states.values():
            answered = answered or time.monotonic() + drain_s
            if "UNLOADING" not in states.values() or time.monotonic() > answered:
                return
        elif time.monotonic() > end:
            others = ", ".join(sorted(ready)) or "none"
            raise NotReady(f"Wanted version {version} of {model} to be ready after {timeout_s:g} s, found {others}.")
        time.sleep(0.02)


def finished(address: Address, model: str, *, timeout_s: float) -> int:
    """A count of the model's work since it was loaded, which grows while the model works.

    Failed requests do not count: when a caller gives up, its request fails although the model never saw it.
    """
    statistics = _ask(address, f"/v2/models/{model}/stats", None, timeout_s=timeout_s)
    return sum(
        int(entry.get("execution_count", 0)) + int(entry["inference_stats"]["success"].get("count", 0))
        for entry in statistics["model_stats"]
    )


def instances(address: Address, model: str, *, timeout_s: float = _ASK_TIMEOUT_S) -> int:
    """How many instances of each version the configuration asks for."""
    config = _ask(address, f"/v2/models/{model}/config", None, timeout_s=timeout_s)
    return sum(int(group.get("count", 1)) for group in config.get("instance_group", ())) or 1


def _instance_names(group: Mapping[str, Any]) -> list[str]:
    """As Triton names them: NAME_0, NAME_1, …"""
    return [f"{group.get('name', '')}_{index}" for index in range(int(group.get("count", 1)))]


def _ask(address: Address, path: str, body: Any, *, timeout_s: float) -> Any:
    try:
        status, answer = call(address, path, body, timeout_s=timeout_s)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NotReady(f"Triton at {address.host}:{address.port} gave no answer to {path}: {error}.") from error
    if status != 200:
        text = str(answer.get("error", "")) if isinstance(answer, dict) else ""
        # The reason of a Python stage ends in a traceback, which is in the log too.
        reason = " ".join(text.split("\nAt:")[0].split())[:400] or "no reason given"
        raise RequestFailed(f"Triton refused {path}: {reason.rstrip('.')}.", status=status)
    return answer


def call(address: Address, path: str, body: Any = None, *, timeout_s: float) -> tuple[int, Any]:
    """One request on its own connection: an idle connection would hold up the server's exit.

    The secret is sent where it is needed, and only to a server of this user: while a server starts, anybody may listen
    on its port.
    """
    connection = http.client.HTTPConnection(address.host, address.port, timeout=timeout_s)
    headers = {"Connection": "close"}
    try:
        if address.secret and path.startswith(_RESTRICTED_PATH):
            before = listeners(address.port)
            connection.connect()
            require_own(address.port, before)
            headers[SECRET_HEADER] = address.secret
        method, payload = ("GET", None) if body is None else ("POST", json.dumps(body))
        connection.request(method, path, body=payload, headers=headers)
        response = connection.getresponse()
        text = response.read()
        return response.status, json.loads(text) if text else {}
    finally:
        connection.close()
