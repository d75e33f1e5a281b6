"""Three loopback ports for a Triton: the requested ones, which must be free, or free ones."""

from __future__ import annotations

import contextlib
import socket
from typing import NamedTuple

from trimaran.core.errors import UsageError

HOST = "127.0.0.1"


class Ports(NamedTuple):
    http: int
    grpc: int
    metrics: int


def choose(*, http: int | None, grpc: int | None, metrics: int | None) -> Ports:
    """Raises UsageError for a requested port that is taken or impossible. A free port may be taken a moment later."""
    requested = {"http": http, "grpc": grpc, "metrics": metrics}
    fixed = [port for port in requested.values() if port is not None]
    if len(set(fixed)) != len(fixed):
        raise UsageError(f"The three ports must differ, found {fixed}.", hint="Give three different ports.")
    with contextlib.ExitStack() as held:
        chosen = {kind: _held(held, 0 if port is None else port, f"--{kind}-port") for kind, port in requested.items()}
    return Ports(**chosen)


def taken(port: int, flag: str) -> UsageError:
    return UsageError(
        f"Port {port} is already in use.", hint=f"Stop what listens there, or give another {flag}.", port=port
    )


def _held(held: contextlib.ExitStack, port: int, flag: str) -> int:
    """Listens on the port until `held` closes, so that no port is picked twice; 0 picks a free one."""
    if not 0 <= port < 65536:
        raise UsageError(f"{flag} wants a number between 1 and 65535, found {port}.")
    listener = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
        listener.listen(1)
    except PermissionError as error:
        raise UsageError(f"Port {port} needs more rights than you have.", hint=f"Give a {flag} above 1023.") from error
    except OSError as error:
        raise taken(port, flag) from error
    return int(listener.getsockname()[1])
