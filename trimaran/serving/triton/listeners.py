"""Who listens on a port of this machine: the secret of a server is sent to nobody but that server's user."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
# 127.0.0.1 and every address, as the kernel writes them for both kinds of sockets.
_LOOPBACK = ("0100007F", "0" * 8, f"{'0' * 16}FFFF00000100007F", "0" * 32)
_LISTENS = "0A"


class Listener(NamedTuple):
    uid: int
    inode: str


def listeners(port: int) -> frozenset[Listener] | None:
    """The sockets that listen on a port of the loopback; None where the kernel does not tell."""
    found = set()
    try:
        for table in _TABLES:
            for line in table.read_text().splitlines()[1:]:
                _, local, _, state, *facts = line.split()
                address, _, number = local.partition(":")
                if state == _LISTENS and int(number, 16) == port and address in _LOOPBACK:
                    found.add(Listener(uid=int(facts[3]), inode=facts[5]))
    except OSError:
        return None
    return frozenset(found)


def require_own(port: int, before: frozenset[Listener] | None) -> None:
    """Raises PermissionError unless a connection to the port was made to a process of this user.

    `before` are the listeners before it was made. Where they are the same after it, one of them has taken it.
    """
    after = listeners(port)
    if before is None or after is None:
        return
    if not after or before != after or any(listener.uid != os.geteuid() for listener in after):
        raise PermissionError(f"port {port} is listened to by another user, or has just begun to be")
