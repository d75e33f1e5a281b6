"""The servers that run now: where a model is found, and how they are."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import psutil

from trimaran.core.choices import Protocol
from trimaran.core.errors import TrimaranError, UsageError
from trimaran.core.model_config import RELEASE
from trimaran.core.spec import Frozen
from trimaran.judging.shadow_evidence import ShadowEvidence
from trimaran.model_repository.layout import Deployment
from trimaran.model_repository.versions import list_models, model_versions
from trimaran.serving.triton.daemon import Running, load_on_servers, running

_TIMEOUT_S = 5.0


class ModelStatus(Frozen):
    """A model that a server has loaded."""

    name: str
    version: str
    # Of the version's files, as the server tells it; empty for versions that were laid out without one.
    digest: str
    # Requests that were answered and refused, and rows that were computed, since the version was loaded.
    answered: int
    failed: int
    rows: int


class ServerStatus(Frozen):
    repository: Path
    pid: int
    http: str
    grpc: str
    log: Path
    # Whether it answers now.
    answers: bool
    # Of the server with all its processes.
    memory_bytes: int
    reloads: int
    restarts: int
    models: tuple[ModelStatus, ...]
    # Models that are not served because their files are damaged, with the reason.
    refused: dict[str, str]
    # What the repository names as served, and this server has not loaded: `NAME version 2`.
    not_loaded: tuple[str, ...] = ()
    # The share of rows that the shadow checks, how often its process was started again, and what it has seen.
    shadow: float = 0.0
    shadow_restarts: int = 0
    shadowed: tuple[ShadowEvidence, ...] = ()


def live_url(name: str, protocol: Protocol) -> str:
    """host:port of the running server that has the model; "" when no server runs, for the client's default.

    Raises UsageError when several servers have it, or when servers run and none has it.
    """
    states = running()
    loaded = {state.pid: {*state.models, *_loaded(state)} for state in states}
    having = [state for state in states if name in loaded[state.pid]]
    if states and not having:
        names = sorted(set().union(*loaded.values()))
        raise UsageError(
            f"No running server has {name}. They have: {', '.join(names) or 'no model'}.",
            hint="Give --url to ask a Triton that `trimaran serve` did not start.",
        )
    urls = [f"127.0.0.1:{state.grpc_port if protocol == 'grpc' else state.http_port}" for state in having]
    if len(urls) > 1:
        raise UsageError(f"{len(urls)} running servers have {name}.", hint=f"Give one as --url: {', '.join(urls)}.")
    return next(iter(urls), "")


def load_where_served(deployment: Deployment) -> tuple[str, ...]:
    """Loads a new model into the running servers of its repository; returns the gRPC addresses that serve it then.

    A later version waits for `trimaran promote`, and the addresses that serve the model now are returned.
    """
    repository, name = deployment.repository.absolute(), deployment.name
    servers = [state for state in running() if state.repository == repository]
    serves = deployment.version in model_versions(repository, name).served
    if servers and serves and any((name, str(deployment.version)) not in _loaded(state).items() for state in servers):
        load_on_servers(repository, name)
    return tuple(f"127.0.0.1:{state.grpc_port}" for state in servers)


def _loaded(state: Running) -> dict[str, str]:
    """The versions of the models that a server has loaded now; nothing when it does not answer."""
    return {model.name: model.version for model in _models(state.http_port) or ()}


def any_url(repository: Path, protocol: Protocol) -> str:
    """host:port of the running server of the repository; "" when there is none."""
    for state in running():
        if state.repository == repository.absolute():
            return f"127.0.0.1:{state.grpc_port if protocol == 'grpc' else state.http_port}"
    return ""


def statuses() -> tuple[ServerStatus, ...]:
    return tuple(map(_status, running()))


def _status(state: Running) -> ServerStatus:
    models = _models(state.http_port)
    return ServerStatus(
        repository=state.repository,
        pid=state.pid,
        http=f"127.0.0.1:{state.http_port}",
        grpc=f"127.0.0.1:{state.grpc_port}",
        log=state.log,
        answers=models is not None,
        memory_bytes=_memory_bytes(state.pid),
        reloads=state.reloads,
        restarts=state.restarts,
        models=models or (),
        refused=state.refused,
        not_loaded=_not_loaded(state.repository, models or ()),
        shadow=state.shadow,
        shadow_restarts=state.shadow_restarts,
        shadowed=state.shadow_state().versions,
    )


def _not_loaded(repository: Path, models: tuple[ModelStatus, ...]) -> tuple[str, ...]:
    loaded = {(model.name, int(model.version)) for model in models}
    try:
        listed = [model for model in list_models(repository) if model.task]
    except TrimaranError:
        return ()
    wanted = [(model.name, version) for model in listed for version in model.served]
    return tuple(f"{name} version {version}" for name, version in wanted if (name, version) not in loaded)


def _models(port: int) -> tuple[ModelStatus, ...] | None:
    """What Triton counts of each version; None when it does not answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/models/stats", timeout=_TIMEOUT_S) as reply:
            listed = json.load(reply)["model_stats"]
    except (OSError, ValueError, KeyError):
        return None
    return tuple(_model(stats, _digest(port, stats["name"], stats["version"])) for stats in listed)


def _digest(port: int, name: str, version: str) -> str:
    """From the configuration that the server has loaded, which names one version by its digest."""
    url = f"http://127.0.0.1:{port}/v2/models/{name}/versions/{version}/config"
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as reply:
            release = json.load(reply)["parameters"][RELEASE]["string_value"]
    except (OSError, ValueError, KeyError):
        return ""
    number, _, digest = release.partition(":")
    return digest if number == version else ""


def _model(stats: dict[str, Any], digest: str) -> ModelStatus:
    counts = stats.get("inference_stats", {})
    return ModelStatus(
        name=stats["name"],
        version=stats["version"],
        digest=digest,
        answered=int(counts.get("success", {}).get("count", 0)),
        failed=int(counts.get("fail", {}).get("count", 0)),
        rows=int(stats.get("inference_count", 0)),
    )


def _memory_bytes(pid: int) -> int:
    total = 0
    try:
        processes = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    except psutil.Error:
        return 0
    for process in processes:
        try:
            total += process.memory_info().rss
        except psutil.Error:
            continue
    return total
