"""Servers that outlive the command that started them: a supervisor each, found and stopped by its state file."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any, Unpack

from trimaran.core.errors import ToolError, TrimaranError, error_from_json
from trimaran.core.store import default_home
from trimaran.serving.triton.server import DEADLINE_S, EXIT_TIMEOUT_S, LaunchOptions, Server, launch
from trimaran.serving.triton.states import Running, State, running, send, states_folder, ticks
from trimaran.serving.triton.watchdog import DEFAULT_CARE, Care, ServerGone, Watchdog

_WATCH_S = 0.25
_PAUSES_S = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
_STOP_DEADLINE_S = EXIT_TIMEOUT_S + 30.0


__all__ = ["Running", "running", "serve_detached", "serve_forever", "stop"]
log = logging.getLogger(__name__)


class _Ended(BaseException):
    """SIGINT or SIGTERM, as an exception: wherever it strikes, the server's own clean-up runs."""


def serve_forever(
    repository: Path,
    *,
    care: Care = DEFAULT_CARE,
    on_ready: Callable[[Running], None] = lambda running: None,
    **options: Unpack[LaunchOptions],
) -> None:
    """Serves in the foreground until SIGINT or SIGTERM, then drains. `options` are those of `launch`.

    A model that stops answering is loaded again, a server that dies is started again on the same ports; both are
    counted in the state file and logged. Raises what the first start raises, or when it cannot be started again.
    """
    with contextlib.suppress(_Ended), _signals_as_exceptions() as signals:
        server = launch(repository, **options)
        http, grpc, metrics = server.ports
        again: LaunchOptions = {**options, "http_port": http, "grpc_port": grpc, "metrics_port": metrics}
        with _announced(server) as state:
            on_ready(state.running)
            while True:
                reason = _watched(server, care, state, signals)
                log.warning("Triton is started again: %s.", reason)
                server = _started_again(lambda: launch(repository, **again))
                state.count(restarts=1)


def _watched(server: Server, care: Care, state: State, signals: _Signals) -> str:
    """Looks after a server until it must be started again; returns why. However this ends, the server ends with it."""
    with server:
        watchdog = Watchdog(server, care, on_reload=lambda model, reason: state.count(reloads=1))
        try:
            while True:
                with signals.deferred():
                    watchdog.tick()
                time.sleep(_WATCH_S)
        except ServerGone as gone:
            return str(gone)
        finally:
            watchdog.close()


def _started_again(start: Callable[[], Server]) -> Server:
    """With growing pauses between attempts; the last attempt's error is raised."""
    for pause_s in _PAUSES_S:
        try:
            return start()
        except TrimaranError as error:
            log.error("Triton did not start again, next attempt in %g s: %s", pause_s, error)
            time.sleep(pause_s)
    return start()


def serve_detached(repository: Path, *, care: Care = DEFAULT_CARE, **options: Unpack[LaunchOptions]) -> Running:
    """Starts a supervisor in a session of its own and returns when its server is proven."""
    answers, answer = os.pipe()
    log_file = options.get("log_file")
    request = json.dumps(
        {
            **options,
            "repository": str(repository.absolute()),
            "log_file": str(log_file.absolute()) if log_file else None,
            "care": asdict(care),
        }
    )
    supervisor_log = default_home() / "logs" / "supervisor.log"
    supervisor_log.parent.mkdir(parents=True, exist_ok=True)
    try:
        with supervisor_log.open("ab") as stream:
            process = subprocess.Popen(
                [sys.executable, "-m", "trimaran.serving.triton.daemon", str(answer), request],
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                pass_fds=(answer,),
                start_new_session=True,
            )
    except BaseException:
        os.close(answers)
        raise
    finally:
        os.close(answer)
    with os.fdopen(answers, "rb") as stream:
        ready, _, _ = select.select([stream], [], [], options.get("deadline_s", DEADLINE_S) + 30)
        line = stream.readline() if ready else b""
    if not line:
        process.terminate()
        raise ToolError("The supervisor gave no answer.", hint=f"The log is {supervisor_log}.", log=str(supervisor_log))
    told = json.loads(line)
    if "error" in told:
        process.wait()
        raise error_from_json(told["error"])
    # It lives on by design: without this the interpreter would warn about a child that was never waited for.
    process.returncode = 0
    return Running.model_validate(told["running"])


def stop(repository: Path | None = None) -> tuple[Running, ...]:
    """Ends the servers of a repository, or all; returns those that it ended, when they are gone."""
    wanted = repository.absolute() if repository else None
    chosen = [state for state in running() if wanted is None or state.repository == wanted]
    for state in chosen:
        send(state, signal.SIGTERM)
    end = time.monotonic() + _STOP_DEADLINE_S
    for state in chosen:
        while ticks(state.pid) == state.started_ticks:
            if time.monotonic() > end:
                send(state, signal.SIGKILL)
            time.sleep(0.05)
        (states_folder() / f"{state.pid}.json").unlink(missing_ok=True)
    return tuple(chosen)


@contextlib.contextmanager
def _announced(server: Server) -> Iterator[State]:
    """The state file, for as long as the supervisor lives. If it cannot be written, the server ends too."""
    state = State(
        Running(
            pid=os.getpid(),
            started_ticks=ticks(os.getpid()) or 0,
            repository=server.repository,
            http_port=server.ports.http,
            grpc_port=server.ports.grpc,
            metrics_port=server.ports.metrics,
            log=server.log,
            models=server.models,
        )
    )
    try:
        state.write()
        yield state
    finally:
        state.path.unlink(missing_ok=True)
        server.close()


class _Signals:
    """The first SIGINT or SIGTERM raises _Ended; while the server drains, further ones change nothing."""

    def __init__(self) -> None:
        self._held = self._came = False

    def end(self, number: int, frame: FrameType | None) -> None:
        for one in (signal.SIGINT, signal.SIGTERM):
            signal.signal(one, signal.SIG_IGN)
        self._came = True
        if not self._held:
            raise _Ended

    @contextlib.contextmanager
    def deferred(self) -> Iterator[None]:
        """Raises at the end of the block: an exception that strikes inside a pool of threads can leave a lock of the
        whole process taken, and the interpreter then waits for it for ever when it exits.
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
    before = {one: signal.signal(one, signals.end) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield signals
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _supervise(answer: int, request: dict[str, Any]) -> int:
    def tell(told: dict[str, Any]) -> None:
        with os.fdopen(answer, "w", encoding="utf-8") as stream:
            stream.write(json.dumps(told) + "\n")

    told = False

    def ready(state: Running) -> None:
        nonlocal told
        told = True
        tell({"running": state.model_dump(mode="json")})

    request["repository"] = Path(request["repository"])
    request["log_file"] = Path(request["log_file"]) if request["log_file"] else None
    request["care"] = Care(**request["care"])
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        serve_forever(**request, on_ready=ready)
    except TrimaranError as error:
        if told:
            raise
        tell({"error": error.as_json()})
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(_supervise(int(sys.argv[1]), json.loads(sys.argv[2])))
