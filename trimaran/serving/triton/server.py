"""A running Triton: started on the loopback, proven by canaries, and ended for certain."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TypedDict, Unpack, cast

import psutil

from trimaran.core.errors import NotReady, ToolError, UsageError
from trimaran.core.store import default_home, sweep
from trimaran.runtime.pulse import FOLDER
from trimaran.serving.triton import control, installation, keeper, ports, processes, readiness
from trimaran.serving.triton.listing import listed_models

EXIT_TIMEOUT_S = 10
DEADLINE_S = 120.0
_PORT_ATTEMPTS = 5
_POLL_S = 0.05
_KEPT_LOGS = 20
_FAILURE = re.compile(
    r"failed to load '[^']*' version \d+: (?P<reason>.*)|^error: (?P<error>.*)|Poll failed (?P<poll>.*)"
)

log = logging.getLogger(__name__)


class Server:
    """Made by `launch`. A context manager; closing it answers the requests in flight first."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        lifeline: int,
        *,
        repository: Path,
        chosen: ports.Ports,
        log_file: Path,
        pulses: Path,
        drain: bool = True,
    ) -> None:
        self._process = process
        self._command = [str(part) for part in cast(Sequence[object], process.args)]
        self._lifeline: int | None = lifeline
        self.repository = repository
        self.ports = chosen
        self.log = log_file
        self.pulses = pulses
        self._drain = drain
        self.models: tuple[str, ...] = ()

    @property
    def host(self) -> str:
        return ports.HOST

    @property
    def keeper_pid(self) -> int:
        """The process under which Triton and all its stubs run."""
        return self._process.pid

    @property
    def http_url(self) -> str:
        return f"{ports.HOST}:{self.ports.http}"

    @property
    def grpc_url(self) -> str:
        return f"{ports.HOST}:{self.ports.grpc}"

    def alive(self) -> bool:
        return self._process.poll() is None

    def prove(self) -> None:
        """A canary through every loaded model. Raises NotReady."""
        self.models = readiness.loaded_models(self.ports.http)
        for model in self.models:
            readiness.sing(self.ports.http, model)

    def load(self, model: str) -> None:
        """Loads a model that waits to be asked for, or the version that its configuration now names."""
        control.load((ports.HOST, self.ports.http), model)
        self.models = readiness.loaded_models(self.ports.http)

    def close(self) -> None:
        """Drains if it should, then ends the server with all its processes and shared memory; closing twice is
        harmless.
        """
        if not self._drain:
            for process in processes.descendants(self.keeper_pid):
                with contextlib.suppress(psutil.Error):
                    process.kill()
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None
        try:
            self._process.wait(timeout=EXIT_TIMEOUT_S + 20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def failure(self, what: str) -> ToolError:
        """The error for a server that did not do `what`, with the reason its log gives."""
        return ToolError(
            f"Triton {what}: {_reason(self.log)}",
            hint=f"The log is {self.log}.",
            log=str(self.log),
            command=self._command,
        )

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class LaunchOptions(TypedDict, total=False):
    """A port that is not given is picked. Models that are marked as loaded on demand wait for `Server.load`, unless
    `everything` is asked for. With `cpus`, the server and its stubs run on that many of the CPUs that this process may
    use. A response cache is for the models whose configuration asks for it. `otlp` is the OpenTelemetry collector,
    such as http://host:4318, that gets a trace of every request. A server that nobody else asks need not `drain`: it
    is ended at once, where unloading its models would take seconds.
    """

    http_port: int | None
    grpc_port: int | None
    metrics_port: int | None
    log_file: Path | None
    deadline_s: float
    everything: bool
    cpus: int | None
    response_cache_bytes: int
    otlp: str
    drain: bool


def launch(repository: Path, **options: Unpack[LaunchOptions]) -> Server:
    """Starts Triton over the repository and returns when every model has answered a canary.

    Raises UsageError (a given port in use, no models), UnavailableError (no Triton here) or ToolError (it did not
    start; its log stays). The server ends when this process does.
    """
    repository = repository.absolute()
    if not any(repository.glob("*/config.pbtxt")):
        raise UsageError(f"{repository} holds no models to serve.", hint="`trimaran deploy` fills a repository.")
    found = installation.find()
    sweep(repository)
    log_file = options.get("log_file") or _new_log()
    log_file.parent.mkdir(parents=True, exist_ok=True)
    flags = _flags(repository, options)
    given = {kind: cast(int | None, options.get(f"{kind}_port")) for kind in ports.Ports._fields}
    for _ in range(_PORT_ATTEMPTS):
        server = _start(found, repository, ports.choose(**given), log_file, flags, options)
        try:
            if _wait(server, options.get("deadline_s", DEADLINE_S)):
                log.info("Triton serves %s on http %s, grpc %s", repository, server.http_url, server.grpc_url)
                return server
        except BaseException:
            server.close()
            raise
        server.close()
    raise server.failure(f"found no free ports in {_PORT_ATTEMPTS} attempts")


def _flags(repository: Path, options: LaunchOptions) -> list[str]:
    """What Triton is told beyond where things are."""
    models = listed_models(repository)
    loaded = [model.name for model in models if options.get("everything") or not model.on_demand]
    cache = options.get("response_cache_bytes")
    return [
        "--disable-auto-complete-config",
        *("--model-repository", str(repository)),
        # Explicit, so that one model can be unloaded and loaded again, and none is loaded that nobody calls.
        *("--model-control-mode", "explicit"),
        # For the priorities of instances: a spare works only while the others are busy.
        *("--rate-limit", "execution_count"),
        *(part for model in loaded for part in ("--load-model", model)),
        *(("--cache-config", f"local,size={cache}") if cache else ()),
        *(part for setting in _tracing(options.get("otlp", "")) for part in ("--trace-config", setting)),
    ]


def _start(
    found: installation.Installation,
    repository: Path,
    chosen: ports.Ports,
    log_file: Path,
    flags: Sequence[str],
    options: LaunchOptions,
) -> Server:
    folder = Path(tempfile.mkdtemp(prefix="trimaran-triton-"))
    try:
        found.place_backends(folder / "backends")
        pulses = folder / "pulses"
        pulses.mkdir()
        process, lifeline = _spawn(found, chosen, log_file, folder, flags, options.get("cpus"))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return Server(
        process,
        lifeline,
        repository=repository,
        chosen=chosen,
        log_file=log_file,
        pulses=pulses,
        drain=options.get("drain", True),
    )


def _spawn(
    found: installation.Installation,
    chosen: ports.Ports,
    log_file: Path,
    folder: Path,
    flags: Sequence[str],
    cpus: int | None,
) -> tuple[subprocess.Popen[bytes], int]:
    """The keeper with Triton under it, and the lifeline that ends both when it closes."""
    shm_prefix = f"trimaran-{os.getpid()}-{uuid.uuid4().hex[:8]}-"
    command = [
        str(found.binary),
        *flags,
        *("--backend-directory", str(folder / "backends")),
        *("--cache-directory", str(found.caches)),
        *("--http-address", ports.HOST, "--http-port", str(chosen.http)),
        *("--grpc-address", ports.HOST, "--grpc-port", str(chosen.grpc)),
        *("--metrics-address", ports.HOST, "--metrics-port", str(chosen.metrics)),
        *("--exit-timeout-secs", str(EXIT_TIMEOUT_S)),
        *("--backend-config", f"python,shm-region-prefix-name={shm_prefix}"),
    ]
    watched, lifeline = os.pipe()
    # By its path and isolated: the keeper must start fast and owe nothing to this environment.
    allowed = ",".join(map(str, sorted(os.sched_getaffinity(0))[:cpus]))
    guard = [sys.executable, "-I", str(Path(keeper.__file__)), allowed]
    guard += [str(watched), str(EXIT_TIMEOUT_S + 5), shm_prefix]
    try:
        with log_file.open("ab") as stream:
            process = subprocess.Popen(
                [*guard, str(folder), *command],
                env=found.environment() | {FOLDER: str(folder / "pulses")},
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                pass_fds=(watched,),
                start_new_session=True,
            )
    except BaseException:
        os.close(lifeline)
        raise
    finally:
        os.close(watched)
    return process, lifeline


def _tracing(otlp: str) -> tuple[str, ...]:
    """Triton's settings for a trace of every request, under the caller's own where it sends a `traceparent`."""
    if not otlp:
        return ()
    # With its own default, Triton 2.51 sent a lone span only when it ended.
    exporter = {"url": f"{otlp.rstrip('/')}/v1/traces", "bsp_schedule_delay": "1000"}
    return (
        *("mode=opentelemetry", "level=TIMESTAMPS", "rate=1"),
        *(f"opentelemetry,{key}={value}" for key, value in exporter.items()),
    )


def _wait(server: Server, deadline_s: float) -> bool:
    """Whether it came up; False when it lost the race for a port."""
    end = time.monotonic() + deadline_s
    while not readiness.is_ready(server.ports.http):
        if not server.alive():
            if "already in use" in _read(server.log):
                return False
            raise server.failure("did not start")
        if time.monotonic() > end:
            raise server.failure(f"was not ready within {deadline_s:g} s")
        time.sleep(_POLL_S)
    try:
        server.prove()
    except NotReady as error:
        raise server.failure(f"started, but {error.message}") from error
    return True


def _new_log() -> Path:
    """In the home's `logs`, which keeps the last few."""
    folder = default_home() / "logs"
    found = sorted(folder.glob("triton-*.log"), key=lambda path: path.stat().st_mtime)
    for path in found[: -_KEPT_LOGS + 1]:
        path.unlink(missing_ok=True)
    return folder / f"triton-{uuid.uuid4().hex[:12]}.log"


def _reason(log_file: Path) -> str:
    """The sentences of the log that say what went wrong, or else its last lines."""
    lines = _read(log_file).splitlines()
    found = [match.group(match.lastgroup or 0) for line in lines if (match := _FAILURE.search(line))]
    chosen = found[:3] or [line.strip() for line in lines if line.strip()][-5:]
    return " | ".join(line.replace("\\n", " ").strip()[:400] for line in chosen) or "its log is empty."


def _read(path: Path) -> str:
    return path.read_bytes()[-65536:].decode("utf-8", "replace") if path.is_file() else ""
