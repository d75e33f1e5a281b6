"""Servers that outlive the command that started them: a supervisor each, found and stopped by its state file."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from pydantic import ValidationError as SchemaError

from trimaran.errors import ToolError, TrimaranError, error_from_json
from trimaran.serving.server import EXIT_TIMEOUT_S, Server, launch
from trimaran.spec import Frozen
from trimaran.store import default_home, write_atomically

_WATCH_S = 0.25
_STOP_DEADLINE_S = EXIT_TIMEOUT_S + 30.0


class Running(Frozen):
    """A live server. The start time tells its supervisor from a later process that got the same number."""

    pid: int
    started_ticks: int
    repository: Path
    http_port: int
    grpc_port: int
    metrics_port: int
    log: Path
    models: tuple[str, ...]


class _Ended(BaseException):
    """SIGINT or SIGTERM, as an exception: wherever it strikes, the server's own clean-up runs."""


def serve_forever(
    repository: Path,
    *,
    http_port: int | None = None,
    grpc_port: int | None = None,
    metrics_port: int | None = None,
    log_file: Path | None = None,
    deadline_s: float = 120.0,
    on_ready: Callable[[Running], None] = lambda running: None,
) -> None:
    """Serves in the foreground until SIGINT or SIGTERM, then drains. Raises ToolError if Triton dies before."""
    with contextlib.suppress(_Ended), _signals_as_exceptions():
        with launch(
            repository,
            http_port=http_port,
            grpc_port=grpc_port,
            metrics_port=metrics_port,
            log_file=log_file,
            deadline_s=deadline_s,
        ) as server:
            with _announced(server) as running:
                on_ready(running)
                while server.alive():
                    time.sleep(_WATCH_S)
                raise server.failure("ended by itself")


def serve_detached(
    repository: Path,
    *,
    http_port: int | None = None,
    grpc_port: int | None = None,
    metrics_port: int | None = None,
    log_file: Path | None = None,
    deadline_s: float = 120.0,
) -> Running:
    """Starts a supervisor in a session of its own and returns when its server is proven."""
    answers, answer = os.pipe()
    request = json.dumps(
        {
            "repository": str(repository.absolute()),
            "http_port": http_port,
            "grpc_port": grpc_port,
            "metrics_port": metrics_port,
            "log_file": str(log_file.absolute()) if log_file else None,
            "deadline_s": deadline_s,
        }
    )
    supervisor_log = default_home() / "logs" / "supervisor.log"
    supervisor_log.parent.mkdir(parents=True, exist_ok=True)
    try:
        with supervisor_log.open("ab") as stream:
            process = subprocess.Popen(
                [sys.executable, "-m", "trimaran.serving.daemon", str(answer), request],
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
        ready, _, _ = select.select([stream], [], [], deadline_s + 30)
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


def running() -> tuple[Running, ...]:
    """The servers of this user that live; what dead ones left is removed."""
    found = []
    for path in sorted(_states().glob("*.json")):
        try:
            state = Running.model_validate_json(path.read_bytes())
        except (OSError, SchemaError):
            continue
        if _ticks(state.pid) == state.started_ticks:
            found.append(state)
        else:
            path.unlink(missing_ok=True)
    return tuple(found)


def stop(repository: Path | None = None) -> tuple[Running, ...]:
    """Ends the servers of a repository, or all; returns those that it ended, when they are gone."""
    wanted = repository.absolute() if repository else None
    chosen = [state for state in running() if wanted is None or state.repository == wanted]
    for state in chosen:
        _signal(state, signal.SIGTERM)
    end = time.monotonic() + _STOP_DEADLINE_S
    for state in chosen:
        while _ticks(state.pid) == state.started_ticks:
            if time.monotonic() > end:
                _signal(state, signal.SIGKILL)
            time.sleep(0.05)
        (_states() / f"{state.pid}.json").unlink(missing_ok=True)
    return tuple(chosen)


@contextlib.contextmanager
def _announced(server: Server) -> Iterator[Running]:
    """The state file, for as long as the server lives."""
    state = Running(
        pid=os.getpid(),
        started_ticks=_ticks(os.getpid()) or 0,
        repository=server.repository,
        http_port=server.ports.http,
        grpc_port=server.ports.grpc,
        metrics_port=server.ports.metrics,
        log=server.log,
        models=server.models,
    )
    path = _states() / f"{state.pid}.json"
    write_atomically(path, state.model_dump_json(indent=2) + "\n")
    try:
        yield state
    finally:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def _signals_as_exceptions() -> Iterator[None]:
    """The first SIGINT or SIGTERM raises; while the server drains, further ones change nothing."""

    def end(number: int, frame: FrameType | None) -> None:
        for one in (signal.SIGINT, signal.SIGTERM):
            signal.signal(one, signal.SIG_IGN)
        raise _Ended

    before = {one: signal.signal(one, end) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _states() -> Path:
    return default_home() / "servers"


def _signal(state: Running, number: signal.Signals) -> None:
    if _ticks(state.pid) == state.started_ticks:
        with contextlib.suppress(ProcessLookupError):
            os.kill(state.pid, number)


def _ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None if there is none (or only its remains)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])


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
