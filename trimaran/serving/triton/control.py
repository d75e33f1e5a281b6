"""Triton's own controls over HTTP: load, unload, what is there, how much it has done."""

from __future__ import annotations

import http.client
import time
from typing import Any, NamedTuple

from trimaran.core.errors import NotReady, RequestFailed
from trimaran.serving.triton.readiness import call

_LOAD_TIMEOUT_S = 300.0


class Entry(NamedTuple):
    """One line of the repository's index; `state` is empty for what was never loaded."""

    name: str
    version: str
    state: str
    reason: str


def load(address: tuple[str, int], model: str, *, timeout_s: float = _LOAD_TIMEOUT_S) -> None:
    """Loads the model, or the versions that its configuration now names. The old ones serve until the new ones do.

    Raises RequestFailed with Triton's reason when it will not load; what was loaded before is then still there.
    """
    _ask(address, f"/v2/repository/models/{model}/load", {}, timeout_s=timeout_s)


def unload(address: tuple[str, int], model: str, *, timeout_s: float = 30.0) -> None:
    _ask(address, f"/v2/repository/models/{model}/unload", {}, timeout_s=timeout_s)


def index(address: tuple[str, int], *, timeout_s: float = 10.0) -> tuple[Entry, ...]:
    found = _ask(address, "/v2/repository/index", {}, timeout_s=timeout_s)
    return tuple(
        Entry(str(item["name"]), str(item.get("version", "")), str(item.get("state", "")), str(item.get("reason", "")))
        for item in found
    )


def ready_versions(address: tuple[str, int], model: str) -> set[str]:
    return {entry.version for entry in index(address) if entry.name == model and entry.state == "READY"}


def switched(address: tuple[str, int], model: str, version: int, *, timeout_s: float = 60.0) -> None:
    """Returns when this version alone is there: until the others are gone, the newest of them is still the default, and
    until they have answered what they were asked, they still call other models.
    """
    end = time.monotonic() + timeout_s
    while True:
        states = {entry.version: entry.state for entry in index(address) if entry.name == model}
        ready = {number for number, state in states.items() if state == "READY"}
        if ready == {str(version)} and not {"LOADING", "UNLOADING"} & set(states.values()):
            return
        if time.monotonic() > end:
            found = ", ".join(sorted(ready)) or "none"
            raise NotReady(f"Wanted version {version} of {model} to be ready after {timeout_s:g} s, found {found}.")
        time.sleep(0.02)


def finished(address: tuple[str, int], model: str, *, timeout_s: float = 5.0) -> int:
    """How much the model has done since it was loaded: it grows while the model works.

    Failed requests are not counted: one whose caller gave up is among them, though the model never saw it.
    """
    found = _ask(address, f"/v2/models/{model}/stats", None, timeout_s=timeout_s)
    return sum(
        int(entry.get("execution_count", 0)) + int(entry["inference_stats"]["success"].get("count", 0))
        for entry in found["model_stats"]
    )


def instances(address: tuple[str, int], model: str, *, timeout_s: float = 5.0) -> int:
    """How many instances of each version the configuration asks for."""
    found = _ask(address, f"/v2/models/{model}/config", None, timeout_s=timeout_s)
    return sum(int(group.get("count", 1)) for group in found.get("instance_group", ())) or 1


def _ask(address: tuple[str, int], path: str, body: Any, *, timeout_s: float) -> Any:
    try:
        status, found = call(address, path, body, timeout_s=timeout_s)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NotReady(f"Triton at {address[0]}:{address[1]} gave no answer to {path}: {error}.") from error
    if status != 200:
        said = str(found.get("error", "")) if isinstance(found, dict) else ""
        # A python stage's reason comes with its traceback, which is in the log too.
        reason = " ".join(said.split("\nAt:")[0].split())[:400] or "no reason given"
        raise RequestFailed(f"Triton refused {path}: {reason.rstrip('.')}.", status=status)
    return found
