"""The listening socket."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimaran.core.errors import UsageError
from trimaran.serving.gateway.server import _listener
from trimaran.serving.gateway.settings import GatewaySettings


def settings_at(port: int) -> GatewaySettings:
    return GatewaySettings(repository=Path(), triton_url="127.0.0.1:1", port=port)


def test_a_port_in_use_is_refused_with_what_to_do() -> None:
    with _listener(settings_at(0)) as taken:
        with pytest.raises(UsageError, match="cannot be listened on") as refused:
            _listener(settings_at(taken.getsockname()[1]))
    assert "--port" in str(refused.value.hint)
