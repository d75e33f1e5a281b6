"""The kernel's tables of sockets say who listens on a port of the loopback."""

from __future__ import annotations

import os
import socket

import pytest

from trimaran.serving.triton.listeners import listeners, require_own


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::"])
def test_a_listener_that_the_loopback_reaches_is_found_with_its_user(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family, dualstack_ipv6=":" in host) as listener:
        port = listener.getsockname()[1]
        found = listeners(port)
        assert found is not None
        assert [entry.uid for entry in found] == [os.geteuid()]
        require_own(port, found)


def test_a_listener_on_another_address_does_not_count() -> None:
    with socket.create_server(("127.0.0.2", 0)) as listener:
        assert listeners(listener.getsockname()[1]) == frozenset()


def test_a_listener_that_came_meanwhile_is_not_trusted() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with pytest.raises(PermissionError, match="another user"):
            require_own(listener.getsockname()[1], frozenset())
