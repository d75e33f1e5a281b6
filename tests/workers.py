"""Runs the work of the product's child processes in this process, for tests that are not about processes.

Importing PyTorch into a child takes seconds, and a deployment starts seven children. Real ones are tested in
`tests/core/test_isolation.py`, in `tests/end_to_end/`, and wherever a run is killed, hangs or runs out of memory.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.garbage import freeze_libraries
from trimaran.core import isolation
from trimaran.core.errors import ToolError, TrimaranError, error_from_json

# Several lanes of a deployment call at once. PyTorch's exporter and its number of threads are global to a process.
_ONE_AT_A_TIME = threading.RLock()


@contextlib.contextmanager
def workers_in_this_process() -> Iterator[None]:
    """Every `isolation.Worker` runs its calls here. As with a child, arguments and results go through JSON."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(isolation.Worker, "__init__", _open)
        patch.setattr(isolation.Worker, "ask", _ask)
        patch.setattr(isolation.Worker, "close", _close)
        yield


def _open(
    self: Any,
    *,
    environment: Mapping[str, str] | None = None,
    log: Path | None = None,
    memory_limit_bytes: int | None = None,
    python: Path | None = None,
    on_progress: isolation.OnProgress | None = None,
) -> None:
    assert memory_limit_bytes is None and python is None, "only a process of its own can have these"
    self.log = log or Path(os.devnull)
    self.peak_memory_bytes = 0
    self._held = []


def _ask(self: Any, deadline_s: float, *, target: str, **request: Any) -> Any:
    sent = json.loads(json.dumps({"target": target, **request}))
    with _ONE_AT_A_TIME:
        freeze_libraries()
        cores = os.sched_getaffinity(0)
        try:
            # What a child prints goes to its log, and never among the lines of the command.
            with contextlib.redirect_stdout(io.StringIO()):
                result = isolation._answer(self._held, **sent)
        except TrimaranError as error:
            raise error_from_json(json.loads(json.dumps(error.as_json()))) from error
        except Exception as error:
            raise ToolError(f"{target} failed: {type(error).__name__}: {error}.") from error
        finally:
            # A probe pins its process.
            os.sched_setaffinity(0, cores)
    self.peak_memory_bytes = isolation.peak_memory_bytes()
    return json.loads(json.dumps(result))


def _close(self: Any) -> None:
    self._held.clear()
