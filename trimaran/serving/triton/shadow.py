"""Keeps the shadow process of a server running. A shadow that dies is started again and never harms the server."""

from __future__ import annotations

import contextlib
import logging
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

_PAUSE_S = 5.0
_END_S = 5.0
log = logging.getLogger(__name__)


class ShadowKeeper:
    """Use it as a context manager, and call `tick` now and then. Without a share of requests it does nothing."""

    def __init__(
        self, *, share: float, folder: Path, repository: Path, state_path: Path, on_restart: Callable[[], None]
    ) -> None:
        self._share, self._on_restart = share, on_restart
        module = "trimaran.serving.triton.shadow_process"
        self._command = [sys.executable, "-m", module, str(folder), str(repository), str(state_path)]
        self._process: subprocess.Popen[bytes] | None = None
        self._started_s = 0.0

    def tick(self) -> None:
        """Starts the process again if it is gone, after a pause."""
        if self._process is None or self._process.poll() is None or time.monotonic() < self._started_s + _PAUSE_S:
            return
        log.warning("The shadow check ended with code %d and is started again.", self._process.returncode)
        self._start()
        self._on_restart()

    def _start(self) -> None:
        self._started_s = time.monotonic()
        with contextlib.suppress(OSError):  # too many processes, or too little memory: tried again later
            # It reads its standard input, which closes when this process ends in any way.
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
            )

    def __enter__(self) -> ShadowKeeper:
        if self._share > 0:
            self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process = self._process
        if process is None:
            return
        with contextlib.suppress(OSError):
            if process.stdin:
                process.stdin.close()
        try:
            process.wait(timeout=_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
