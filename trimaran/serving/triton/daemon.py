"""Servers that live on after the command that started them, each under a supervisor with a state file."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Unpack

from trimaran.core.errors import NotReady, ServerError, ToolError, TrimaranError, error_from_json
from trimaran.core.spec import Frozen
from trimaran.core.store import default_home
from trimaran.serving.triton import control, readiness
from trimaran.serving.triton.flags import EXIT_TIMEOUT_S
from trimaran.serving.triton.server import DEADLINE_S, LaunchOptions, Server, launch
from trimaran.serving.triton.shadow import ShadowKeeper
from trimaran.serving.triton.spawning import spawn
from trimaran.serving.triton.states import Running, StateFile, running, start_ticks
from trimaran.serving.triton.undamaged import require_loadable
from trimaran.serving.triton.watchdog import DEFAULT_SETTINGS, ServerGone, Watchdog, WatchdogSettings
from trimaran.serving.triton.watched_server import LiveServer

_ENDING = (signal.SIGINT, signal.SIGTERM)
_WATCH_S = 0.25
# How often to look for models that were loaded meanwhile.
_LOOK_S = 1.0
_PAUSES_S = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
_STOP_DEADLINE_S = EXIT_TIMEOUT_S + 30.0

__all__ = ["Running", "load_on_servers", "running", "serve_detached", "serve_forever", "stop"]
log = logging.getLogger(__name__)


class _Request(Frozen):
    """What a supervisor is started with."""

    repository: Path
    watchdog: WatchdogSettings
    options: LaunchOptions


class _Ended(BaseException):
    """SIGINT or SIGTERM as an exception, so that the server's own clean-up runs wherever it is raised."""


def serve_forever(
    repository: Path,
    *,
    watchdog: WatchdogSettings = DEFAULT_SETTINGS,
    on_ready: Callable[[Running], None] = lambda running: None,
    **options: Unpack[LaunchOptions],
) -> None:
    """Serves in the foreground until SIGINT or SIGTERM, then drains. `options` are those of `launch`.

    A model that stops answering is loaded again, and a server that dies is started again on the same ports. Both are
    counted in the state file and logged. Raises what the first start raises, and when a restart fails for good.
    """
    with contextlib.suppress(_Ended), _signals_as_exceptions() as signals:
        server = launch(repository, **options)
        http, grpc, metrics = server.ports
        again: LaunchOptions = {**options, "http_port": http, "grpc_port": grpc, "metrics_port": metrics}
        again["secret"] = server.control.secret
        with _announced(server, options.get("shadow", 0.0)) as state:
            on_ready(state.running)
            while True:
                reason = _watch(server, watchdog, state, signals)
                log.warning("Triton is started again: %s.", reason)
                server = _start_again(lambda: launch(repository, **again))
                state.count("restarts")


def _watch(server: Server, settings: WatchdogSettings, state: StateFile, signals: _Signals) -> str:
    """Looks after a server until it must be started again; returns the reason. The server is closed in any case."""
    with server, _shadow_of(server, state) as shadow:
        watchdog = Watchdog(LiveServer(server), settings, on_reload=lambda model, reason: state.count("reloads"))
        next_look_s = time.monotonic() + _LOOK_S
        try:
            while True:
                with signals.deferred():
                    watchdog.tick()
                    if time.monotonic() >= next_look_s:
                        if loaded := _loaded_since(server, state):
                            watchdog.watch(loaded)
                        next_look_s = time.monotonic() + _LOOK_S
                    shadow.tick()
                watchdog.wait(_WATCH_S)
        except ServerGone as gone:
            if not gone.answers:
                server.close(drain=False)
            return str(gone)
        finally:
            watchdog.close()


def _loaded_since(server: Server, state: StateFile) -> tuple[str, ...]:
    """Models that a command loaded into the running server; the state file names them from now on."""
    try:
        # A server that is stopped is found by the watchdog, which must not wait for this.
        models = readiness.loaded_models(server.control, timeout_s=_LOOK_S)
    except ServerError:
        return ()
    new = tuple(model for model in models if model not in state.running.models)
    if new:
        state.add(new)
    return new


def _shadow_of(server: Server, state: StateFile) -> ShadowKeeper:
    return ShadowKeeper(
        share=state.running.shadow,
        folder=server.shadow,
        repository=server.repository,
        state_path=state.running.shadow_path,
        on_restart=lambda: state.count("shadow_restarts"),
    )


def _start_again(start: Callable[[], Server]) -> Server:
    """Tries with growing pauses; raises the error of the last attempt."""
    for pause_s in _PAUSES_S:
        try:
            return start()
        except TrimaranError as error:
            log.error("Triton did not start again, next attempt in %g s: %s", pause_s, error)
            time.sleep(pause_s)
    return start()


def serve_detached(
    repository: Path, *, watchdog: WatchdogSettings = DEFAULT_SETTINGS, **options: Unpack[LaunchOptions]
) -> Running:
    """Starts a supervisor in its own session and returns when its server has answered its canaries."""
    if log_file := options.get("log_file"):
        options["log_file"] = log_file.absolute()
    if trust_key := options.get("trust_key"):
        options["trust_key"] = trust_key.absolute()
    request = _Request(repository=repository.absolute(), watchdog=watchdog, options=options).model_dump_json()
    supervisor_log = default_home() / "logs" / "supervisor.log"
    answers, answer = os.pipe()
    command = [sys.executable, "-m", "trimaran.serving.triton.daemon", str(answer), request]
    process = spawn(command, log_file=supervisor_log, keeps=answer, other_end=answers)
    with os.fdopen(answers, "rb") as stream:
        ready, _, _ = select.select([stream], [], [], options.get("deadline_s", DEADLINE_S) + 30)
        line = stream.readline() if ready else b""
    if not line:
        process.terminate()
        raise ToolError("The supervisor gave no answer.", hint=f"The log is {supervisor_log}.", log=str(supervisor_log))
    message = json.loads(line)
    if "error" in message:
        process.wait()
        raise error_from_json(message["error"])
    # It lives on by design. Without this the interpreter would warn about a child that was never waited for.
    process.returncode = 0
    return Running.model_validate(message["running"])


def stop(repository: Path | None = None) -> tuple[Running, ...]:
    """Ends the servers of a repository, or all servers; returns them when they are gone."""
    chosen = [state for state in running() if repository is None or state.repository == repository.absolute()]
    for state in chosen:
        state.send(signal.SIGTERM)
    end = time.monotonic() + _STOP_DEADLINE_S
    for state in chosen:
        while state.alive:
            if time.monotonic() > end:
                state.send(signal.SIGKILL)
            time.sleep(0.05)
        state.remove()
    return tuple(chosen)


def load_on_servers(repository: Path, model: str, *, unload: bool = False) -> tuple[int, ...]:
    """Loads or unloads a model on the live servers of a repository; returns their HTTP ports."""
    servers = [state for state in running() if state.repository == repository.absolute()]
    if not servers:
        raise NotReady(f"No server of {repository} runs.", hint="`trimaran serve` starts one.")
    for state in () if unload else servers:
        require_loadable(state.repository, model, state.trust_key)
    for state in servers:
        (control.unload if unload else control.load)(state.control, model)
    return tuple(state.http_port for state in servers)


@contextlib.contextmanager
def _announced(server: Server, shadow: float) -> Iterator[StateFile]:
    """The state file, for as long as the supervisor lives. If it cannot be written, the server ends too."""
    state = Running(
        pid=os.getpid(),
        started_ticks=start_ticks(os.getpid()) or 0,
        repository=server.repository,
        http_port=server.ports.http,
        grpc_port=server.ports.grpc,
        metrics_port=server.ports.metrics,
        log=server.log,
        models=server.models,
        refused=server.refused,
        trust_key=server.trust_key,
        shadow=shadow,
    )
    try:
        yield StateFile(state, server.control.secret)
    finally:
        state.remove()
        server.close()


class _Signals:
    """The first SIGINT or SIGTERM raises _Ended; further ones are ignored while the server drains."""

    def __init__(self) -> None:
        self._held = self._came = False

    def end(self, number: int, frame: FrameType | None) -> None:
        for ending in _ENDING:
            signal.signal(ending, signal.SIG_IGN)
        self._came = True
        if not self._held:
            raise _Ended

    @contextlib.contextmanager
    def deferred(self) -> Iterator[None]:
        """Raises at the end of the block only. An exception inside a thread pool can leave a process-wide lock taken,
        and the interpreter then waits for it for ever when it exits.
        """
        self._held = True
        try:
            yield
        finally:
            self._held = False
            if self._came:
                raise _Ended


@contextlib.contextmanager
def _signals_as_exceptions() -> Iterator[_Signals]:
    signals = _Signals()
    before = {number: signal.signal(number, signals.end) for number in _ENDING}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _supervise(answer: int, request: _Request) -> int:
    """The supervisor process of `serve_detached`: tells it through `answer` once how the start went."""
    told = False

    def tell(message: dict[str, Any]) -> None:
        nonlocal told
        told = True
        with os.fdopen(answer, "w", encoding="utf-8") as stream:
            stream.write(json.dumps(message) + "\n")

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        serve_forever(
            request.repository,
            watchdog=request.watchdog,
            on_ready=lambda state: tell({"running": state.model_dump(mode="json")}),
            **request.options,
        )
    except TrimaranError as error:
        if told:
            raise
        tell({"error": error.as_json()})
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(_supervise(int(sys.argv[1]), _Request.model_validate_json(sys.argv[2])))
