"""A running Triton: started on the loopback, proven by canary requests, and always ended with its processes."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Unpack, cast

import psutil
from typing_extensions import TypedDict  # pydantic reads this one on Python 3.11

from trimaran.core.errors import NotReady, ServerError, ToolError, UsageError
from trimaran.core.repository import model_folders, models_in, stages_among
from trimaran.core.store import remove_unless_locked, sweep
from trimaran.runtime import shadow
from trimaran.runtime.pulse import FOLDER
from trimaran.serving.triton import control, installation, keeper, ports, processes, readiness
from trimaran.serving.triton.flags import EXIT_TIMEOUT_S, address_flags, restricting_flags, server_flags, tracing_flags
from trimaran.serving.triton.server_log import lost_its_port, new_log, reason_in
from trimaran.serving.triton.spawning import spawn
from trimaran.serving.triton.undamaged import damaged, require_loadable

DEADLINE_S = 120.0
_PORT_ATTEMPTS = 5
# Triton's HTTP status when a model fails, as one whose stub died.
_ERROR = 500
_POLL_S = 0.05
_FOLDER_PREFIX = "trimaran-triton-"

log = logging.getLogger(__name__)


class Server:
    """A running Triton, made by `trimaran.serve`. As a context manager it answers the requests in flight, then ends.

    Examples:
        >>> with trimaran.serve("model_repository") as server:
        ...     server.models, server.grpc_url
        (('minilm',), '127.0.0.1:45123')
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        lifeline: int,
        *,
        repository: Path,
        chosen: ports.Ports,
        log_file: Path,
        pulses: Path,
        secret: str,
        drain: bool = True,
    ) -> None:
        self._process = process
        self._command = [str(part) for part in cast(Sequence[object], process.args)]
        self._lifeline: int | None = lifeline
        self.repository = repository
        self.ports = chosen
        self.log = log_file
        self.pulses = pulses
        # Where models are loaded and unloaded, with the secret that opens it.
        self.control = control.Address(ports.HOST, chosen.http, secret)
        self._drain = drain
        self.models: tuple[str, ...] = ()
        # The public key with which everything that is loaded must be signed.
        self.trust_key: Path | None = None
        # Models that were not loaded because their files are damaged, with the reason.
        self.refused: dict[str, str] = {}

    @property
    def host(self) -> str:
        return ports.HOST

    @property
    def shadow(self) -> Path:
        """The folder of the sockets between stages and their shadow process."""
        return self.pulses.with_name("shadow")

    @property
    def keeper_pid(self) -> int:
        """The parent process of Triton and all its Python stubs."""
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
        """Sends a canary through every loaded model. Raises NotReady."""
        self.models = readiness.loaded_models(self.control)
        for model in self.models:
            readiness.send_canary(self.ports.http, model)

    def load(self, model: str) -> None:
        """Loads an on-demand model, or the version that the model's configuration now names.

        Raises IntegrityError for a model whose files are damaged.
        """
        self.require_loadable(model)
        control.load(self.control, model)
        self.models = readiness.loaded_models(self.control)

    def require_loadable(self, model: str) -> None:
        """Raises IntegrityError for a model whose files are damaged, or not signed where they must be."""
        require_loadable(self.repository, model, self.trust_key)

    def close(self, *, drain: bool = True) -> None:
        """Drains, unless launched or called without, and ends the server with its processes and shared memory.

        Closing twice is harmless.
        """
        if not (self._drain and drain):
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
        """The error of a server that did not do `what`, with the reason from its log."""
        return ToolError(
            f"Triton {what}: {reason_in(self.log)}",
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
    # A port that is not given, or None, is picked.
    http_port: int | None
    grpc_port: int | None
    metrics_port: int | None
    # Where it listens: the loopback, or every address. Whoever reaches it may call; only a gateway limits.
    host: str
    # Where its metrics are read; by default the same.
    metrics_host: str
    # The models to load, with the stages that they call; by default all that are not on demand.
    models: tuple[str, ...]
    # By default a new file in the home's `logs`. `-` is this process's own output.
    log_file: Path | None
    # How long the server may take to answer its canaries.
    deadline_s: float
    # Whether models that are marked "on demand" are loaded too; otherwise they wait for `Server.load`.
    everything: bool
    # How many of the CPUs of this process the server and its stubs may use.
    cpus: int | None
    # A response cache for the models whose configuration asks for it.
    response_cache_bytes: int
    # An OpenTelemetry collector, such as http://host:4318, that gets a trace of every request.
    otlp: str
    # Whether closing answers what is in flight. Without, the server is killed at once; unloading would take seconds.
    drain: bool
    # A public key (PEM). Only versions that are signed with it are loaded.
    trust_key: Path | None
    # Opens the control API; by default a new one for each server.
    secret: str
    # The share of rows that stages hand to a shadow process, which the supervisor keeps.
    shadow: float


def launch(repository: Path, **options: Unpack[LaunchOptions]) -> Server:
    """Starts Triton over the repository and returns when every model has answered a canary.

    Raises UsageError (a given port in use, no models), UnavailableError (no Triton here) or ToolError (it did not
    start; its log stays). The server ends when this process does.

    A model whose files are damaged is left out and named in the log; IntegrityError if all of them are. If a model
    answers its first canary with an error, Triton is started once more: its stub may have died by then.
    """
    repository = repository.absolute()
    if not model_folders(repository):
        raise UsageError(f"{repository} holds no models to serve.", hint="`trimaran deploy` fills a repository.")
    triton = installation.find()
    sweep(repository)
    log_file = options.get("log_file") or new_log()
    wanted = wanted_models(repository, options)
    trust_key = options.get("trust_key")
    refused = damaged(repository, wanted, trust_key)
    if wanted and set(wanted) == set(refused):
        raise next(iter(refused.values()))
    for name, error in refused.items():
        log.error("Model %s is not served: %s", name, error)
    flags = _flags(repository, [name for name in wanted if name not in refused], options)
    wanted_ports = {kind: cast(int | None, options.get(f"{kind}_port")) for kind in ports.Ports._fields}
    for attempt in range(_PORT_ATTEMPTS):
        server = _start(triton, repository, ports.choose(**wanted_ports), log_file, flags, options)
        try:
            if _wait(server, options.get("deadline_s", DEADLINE_S), forgives_error=attempt == 0):
                server.trust_key = trust_key
                server.refused = {name: str(error) for name, error in refused.items()}
                log.info("Triton serves %s on http %s, grpc %s", repository, server.http_url, server.grpc_url)
                return server
        except BaseException:
            server.close()
            raise
        # A dead stub cannot finish anything, and Triton would wait for it.
        server.close(drain=False)
    raise server.failure(f"found no free ports in {_PORT_ATTEMPTS} attempts")


def wanted_models(repository: Path, options: LaunchOptions) -> list[str]:
    """The models to load at the start. Raises UsageError for a name that the repository does not have."""
    everything, named = options.get("everything"), options.get("models", ())
    known = models_in(repository)
    if absent := sorted(set(named) - {model.name for model in known}):
        there = ", ".join(model.name for model in known if model.task)
        raise UsageError(f"{repository} holds no model {absent[0]!r} to serve.", hint=f"There: {there or 'none'}.")
    chosen = {*named, *(stage.name for name in named for stage in stages_among(known, name))}
    loaded = [model.name for model in known if everything or not model.on_demand]
    return [name for name in loaded if not named or name in chosen]


def _flags(repository: Path, loaded: Sequence[str], options: LaunchOptions) -> list[str]:
    """Everything but the ports and folders of one start."""
    cache_bytes = options.get("response_cache_bytes")
    host = options.get("host") or ports.HOST
    return [
        *server_flags(repository, loaded),
        *address_flags(host, metrics_address=options.get("metrics_host") or host),
        *((f"--cache-config=local,size={cache_bytes}",) if cache_bytes else ()),
        *tracing_flags(options.get("otlp", "")),
    ]


def _start(
    triton: installation.Installation,
    repository: Path,
    chosen: ports.Ports,
    log_file: Path,
    flags: Sequence[str],
    options: LaunchOptions,
) -> Server:
    _remove_left_over()
    folder = Path(tempfile.mkdtemp(prefix=_FOLDER_PREFIX, dir=installation.executable_folder()))
    lock = os.open(folder, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        backends = triton.backends(folder)
        pulses = folder / "pulses"
        pulses.mkdir()
        (folder / "shadow").mkdir()
        secret = options.get("secret") or secrets.token_hex(16)
        hidden = _hidden(restricting_flags(secret))
        process, lifeline = _spawn(triton, chosen, log_file, folder, backends, flags, hidden, lock, options)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        os.close(lock)
    return Server(
        process,
        lifeline,
        repository=repository,
        chosen=chosen,
        log_file=log_file,
        pulses=pulses,
        secret=secret,
        drain=options.get("drain", True),
    )


def _remove_left_over() -> None:
    """Removes the folders of servers whose keeper was killed: nobody holds their lock any more.

    A folder in the command line of a process stays too: an older trimaran locks nothing.
    """
    folders = list(installation.executable_folder().glob(f"{_FOLDER_PREFIX}*"))
    words = "\0".join(processes.command_lines()) if folders else ""
    for folder in folders:
        with contextlib.suppress(OSError):
            if folder.stat().st_uid == os.getuid() and str(folder) not in words:
                remove_unless_locked(folder)


def _spawn(
    triton: installation.Installation,
    chosen: ports.Ports,
    log_file: Path,
    folder: Path,
    backends: Path,
    flags: Sequence[str],
    hidden: Mapping[str, str],
    lock: int,
    options: LaunchOptions,
) -> tuple[subprocess.Popen[bytes], int]:
    """The keeper with Triton under it, and a pipe's end: both processes end when it closes."""
    shm_prefix = f"trimaran-{os.getpid()}-{uuid.uuid4().hex[:8]}-"
    command = [
        str(triton.binary),
        *flags,
        *(f"--{kind}-port={port}" for kind, port in chosen._asdict().items()),
        f"--backend-directory={backends}",
        f"--cache-directory={triton.caches}",
        f"--backend-config=python,shm-region-prefix-name={shm_prefix}",
        *(f"{keeper.HIDDEN}{name}" for name in hidden),
    ]
    watched, lifeline = os.pipe()
    # By its path and in isolated mode: the keeper starts fast and does not depend on this environment.
    allowed = ",".join(map(str, sorted(os.sched_getaffinity(0))[: options.get("cpus")]))
    guard = [sys.executable, "-I", str(Path(keeper.__file__)), allowed]
    guard += [str(watched), str(EXIT_TIMEOUT_S + 5), shm_prefix]
    environment = {**triton.environment(), FOLDER: str(folder / "pulses"), **hidden}
    if share := options.get("shadow"):
        environment |= {shadow.FOLDER: str(folder / "shadow"), shadow.SHARE: str(share)}
    command = [*guard, str(folder), *command]
    # The keeper inherits the lock of the folder, and holds it until it ends.
    process = spawn(command, log_file=log_file, keeps=watched, other_end=lifeline, inherits=(lock,), env=environment)
    return process, lifeline


def _hidden(arguments: Sequence[str]) -> dict[str, str]:
    """Environment variables from which the keeper takes arguments: other users can read a command line."""
    return {f"TRIMARAN_ARGUMENT_{number}": argument for number, argument in enumerate(arguments)}


def _wait(server: Server, deadline_s: float, *, forgives_error: bool) -> bool:
    """Whether the server came up. False when another start may succeed: another process took one of its ports, or a
    model answered its canary with an error, and that is forgiven.
    """
    end = time.monotonic() + deadline_s
    while not readiness.is_ready(server.ports.http):
        if not server.alive():
            if lost_its_port(server.log):
                return False
            raise server.failure("did not start")
        if time.monotonic() > end:
            raise server.failure(f"was not ready within {deadline_s:g} s")
        time.sleep(_POLL_S)
    try:
        server.prove()
    except ServerError as error:
        if forgives_error and isinstance(error, NotReady) and error.status == _ERROR:
            log.warning("%s Triton is started once more.", error.message)
            return False
        raise server.failure(f"started, but {error.message}") from error
    return True
