"""Three ports on the loopback for a Triton: the given ones if they are free, else free ones."""

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
    """Raises UsageError for a given port that is taken or impossible. A free one may be gone a moment later."""
    given = {"http": http, "grpc": grpc, "metrics": metrics}
    named = [port for port in given.values() if port is not None]
    if len(set(named)) != len(named):
        raise UsageError(f"The three ports must differ, found {named}.")
    with contextlib.ExitStack() as held:
        chosen = {kind: _held(held, 0 if port is None else port, f"--{kind}-port") for kind, port in given.items()}
    return Ports(**chosen)


def taken(port: int, flag: str) -> UsageError:
    return UsageError(
        f"Port {port} is already in use.", hint=f"Stop what listens there, or give another {flag}.", port=port
    )


def _held(held: contextlib.ExitStack, port: int, flag: str) -> int:
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
