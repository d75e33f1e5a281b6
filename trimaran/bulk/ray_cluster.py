"""Connects to a Ray cluster, plans its actors, and finds our own errors in those of Ray."""

from __future__ import annotations

import contextlib
import logging
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trimaran.bulk.worker import lanes_for
from trimaran.core.artifact import Artifact
from trimaran.core.backends import backend
from trimaran.core.environment import usable_cores
from trimaran.core.errors import TrimaranError, UnavailableError, UsageError, first_line, install_hint

if TYPE_CHECKING:
    from trimaran.bulk.run import WorkerOptions

_MOST_CORES = 4
_PORT_TIMEOUT_S = 10.0
_CONNECT_TRIES = 3


@dataclass(frozen=True)
class ActorPlan:
    """How many actors encode, and the resources of each."""

    workers: int
    cores: int
    gpus: int
    lanes: int
    threads: int  # of each lane


def plan_actors(ray: Any, artifact: Artifact, work: WorkerOptions) -> ActorPlan:
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
    gpus = 1 if backend(artifact.backend).needs_driver else 0
    if gpus:
        nodes = [resources for resources in nodes if resources.get("GPU")]
    if not nodes:
        raise UnavailableError(
            f"The Ray cluster has no node with {'a GPU' if gpus else 'CPUs'}, which {artifact.backend} needs."
        )
    cores = work.threads or max(1, min(_MOST_CORES, *(int(resources["CPU"]) for resources in nodes)))
    fitting = sum(min(int(node["CPU"]) // cores, int(node.get("GPU", 0)) if gpus else sys.maxsize) for node in nodes)
    if not fitting:
        raise UsageError(f"No node of the Ray cluster has {cores} CPUs for a worker.", hint="Give fewer --threads.")
    memory_bytes = int(min(node.get("memory", 1 << 40) * cores / node["CPU"] for node in nodes))
    lanes, threads = lanes_for(artifact, cores, memory_bytes)
    # Ray would wait forever for actors that do not fit into the cluster.
    return ActorPlan(min(work.workers or fitting, fitting), cores, gpus, lanes, threads)


@contextlib.contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """Ray, connected to the cluster at `address`, or to a cluster of its own that ends with the block."""
    try:
        import ray
    except ImportError as error:
        raise UnavailableError(f"The engine `ray` needs Ray: {error}.", hint=install_hint("scale")) from error
    if ray.is_initialized():
        raise UsageError("This process is connected to a Ray cluster already.", hint="Disconnect with ray.shutdown().")
    options: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
    if address is None:
        options |= {"address": "local", "num_cpus": usable_cores(), "include_dashboard": False}
    else:
        options["address"] = address
    for tries_left in reversed(range(_CONNECT_TRIES)):
        try:
            _require_open_port(address)
            ray.init(**options)
            break
        except Exception as error:
            # A busy cluster that is too slow to start a server for us aborts the connection; all else is final.
            if not tries_left or not isinstance(error, ConnectionAbortedError):
                raise UnavailableError(
                    f"No Ray cluster at {address or 'this machine'}: {first_line(error)}",
                    hint="`ray start --head` starts one; without --address the command starts its own.",
                ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _require_open_port(address: str | None) -> None:
    """Raises OSError if nothing listens at the address. Ray itself would try for minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PORT_TIMEOUT_S).close()


@contextlib.contextmanager
def one_chunk_per_block() -> Iterator[None]:
    """Ray Data's settings for our rows, each of which is a whole chunk and so a block. It prints nothing."""
    from ray.data import DataContext

    # Ray Data's messages go to its log files only; the terminal shows our own progress.
    for handler in logging.getLogger("ray.data").handlers:
        if isinstance(handler, logging.StreamHandler):
            handler.setLevel(logging.ERROR)
    context = DataContext.get_current()
    settings = {
        "target_max_block_size": 1,
        "target_min_block_size": 1,
        "enable_progress_bars": False,
        "print_on_execution_start": False,
        "enable_rich_progress_bars": False,
    }
    before = {name: getattr(context, name) for name in settings if hasattr(context, name)}
    for name in before:
        setattr(context, name, settings[name])
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(context, name, value)


def trimaran_error_in(error: BaseException) -> TrimaranError | None:
    """Our own error that a remote call carries, wherever Ray has put it."""
    waiting: list[Any] = [error]
    seen: set[int] = set()
    while waiting:
        current = waiting.pop()
        if isinstance(current, TrimaranError):
            return current
        if not isinstance(current, BaseException) or id(current) in seen:
            continue
        seen.add(id(current))
        waiting += [current.__cause__, current.__context__, getattr(current, "cause", None)]
    return None
