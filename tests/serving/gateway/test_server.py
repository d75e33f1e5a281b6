"""The listening socket."""

from __future__ import annotations

import pytest

from trimaran.core.errors import UsageError
from trimaran.serving.gateway.server import _listener


def test_a_port_in_use_is_refused_with_what_to_do() -> None:
    with _listener("127.0.0.1", 0) as taken:
        with pytest.raises(UsageError, match="cannot be listened on") as refused:
            _listener("127.0.0.1", taken.getsockname()[1])
    assert "--port" in str(refused.value.hint)
