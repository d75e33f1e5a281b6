"""A Triton of its own in which settings are tried: each is loaded, held to the golden bundle and put under load."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from trimaran.benchmarks.scenarios.loadgen import Load
from trimaran.core.errors import NotReady, ServerError, ToolError
from trimaran.core.isolation import Held, Worker
from trimaran.core.scratch import ScratchFolder
from trimaran.judging.golden import GOLDEN_FILE
from trimaran.pipeline.tune.callers import GoldenCallers
from trimaran.pipeline.tune.record import TuneRound
from trimaran.pipeline.tune.setting_files import Tunable, lay_trial
from trimaran.pipeline.tune.settings import Setting
from trimaran.serving.client import Client
from trimaran.serving.triton import control, readiness
from trimaran.serving.triton.server import Server, launch
from trimaran.serving.triton.verify import require_faithful, verify

# Settings that stay loaded, so that those measured in turns are not loaded each time.
_KEPT_LOADED = 4
_WARM_UP_S = 0.15
_ROOM_S = 120.0


class _Live(NamedTuple):
    """The server that tries settings, and the process of its callers."""

    server: Server
    callers: Held[GoldenCallers]


class Trials:
    """A context manager. `callers` is the size of the crowd."""

    def __init__(self, tuned: Tunable, *, callers: int) -> None:
        self._tuned, self._callers = tuned, callers
        self._folder = ScratchFolder("tune")
        self._repository = Path(self._folder.name) / "repository"
        self._live: _Live | None = None
        self._processes = contextlib.ExitStack()
        self._loaded: list[str] = []
        self._faithful: set[str] = set()

    def measure(self, setting: Setting, seconds: float) -> TuneRound:
        """One caller for a third of the time, then the crowd. The answers are checked before the first measurement.

        Raises QualityError for a setting that changes answers, ServerError or ToolError for one that is not served.
        """
        name = lay_trial(self._tuned, setting, self._repository)
        live = self._running()
        try:
            return self._measured(live, name, seconds)
        except (ToolError, ServerError):
            # The next setting begins with a fresh server and fresh callers.
            self.close()
            raise

    def _measured(self, live: _Live, name: str, seconds: float) -> TuneRound:
        self._load(live.server, name)
        if name not in self._faithful:
            with Client(live.server.grpc_url, concurrency=self._callers) as client:
                require_faithful(verify(client, name, self._tuned.golden))
                require_faithful(verify(client, name, self._tuned.golden, callers=self._callers))
            self._faithful.add(name)
        _load_of(live.callers, name, self._callers, _WARM_UP_S)
        alone = _load_of(live.callers, name, 1, seconds / 3)
        crowd = _load_of(live.callers, name, self._callers, 2 * seconds / 3)
        return TuneRound(
            alone_ns=alone.latencies_ns, crowd_answers=len(crowd.latencies_ns), crowd_elapsed_ns=crowd.elapsed_ns
        )

    def forget(self, setting: Setting) -> None:
        """Frees what a setting that has lost holds."""
        name = lay_trial(self._tuned, setting, self._repository)
        if name in self._loaded and self._live is not None:
            self._unload(self._live.server, name)

    def close(self) -> None:
        self._processes.close()
        self._live, self._loaded = None, []

    def _running(self) -> _Live:
        """The server and its callers, started again if a setting has crashed the server."""
        if self._live is not None and not readiness.is_ready(self._live.server.ports.http):
            self.close()
        if self._live is None:
            server = self._processes.enter_context(launch(self._repository, drain=False))
            worker = self._processes.enter_context(Worker())
            golden = str((self._tuned.folder / GOLDEN_FILE).absolute())
            self._live = _Live(server, worker.hold(GoldenCallers, _ROOM_S, url=server.grpc_url, golden=golden))
        return self._live

    def _load(self, server: Server, name: str) -> None:
        if name in self._loaded:
            return
        while len(self._loaded) >= _KEPT_LOADED:
            self._unload(server, self._loaded[0])
        control.load(server.control, name)
        self._loaded.append(name)

    def _unload(self, server: Server, name: str) -> None:
        self._loaded.remove(name)
        control.unload(server.control, name)

    def __enter__(self) -> Trials:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        self._folder.cleanup()


def _load_of(process: Held[GoldenCallers], name: str, callers: int, seconds: float) -> Load:
    load = Load.model_validate(
        process.call(GoldenCallers.load, seconds + _ROOM_S, model=name, callers=callers, time_s=seconds)
    )
    if load.dead:
        raise NotReady(f"The server stopped answering under {callers} caller(s). {load.dead}")
    if load.failures:
        raise ServerError(f"{load.failures} of {load.failures + len(load.latencies_ns)} requests failed.")
    return load
