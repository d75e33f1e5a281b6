"""`trimaran up`: a model deployed, or reused, and answering at a URL until it is ended."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shlex
import signal
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from trimaran.core.artifact import load_artifact
from trimaran.core.config import DeployConfig
from trimaran.core.config_pbtxt import CONFIG_FILE, read_config
from trimaran.core.progress import Progress
from trimaran.core.spec import ModelRef
from trimaran.core.store import Store, default_home, write_atomically
from trimaran.export.reference import model_ref_of
from trimaran.pipeline.artifact_lookup import served_version
from trimaran.pipeline.line import deploy
from trimaran.pipeline.plan import find_model
from trimaran.pipeline.up_states import UpState, ups
from trimaran.serving.gateway.routes import route_of_task
from trimaran.serving.gateway.server import require_possible
from trimaran.serving.gateway.server import serve as serve_gateway
from trimaran.serving.gateway.settings import GatewaySettings
from trimaran.serving.triton.daemon import Running, load_on_servers, running, serve_detached, stop
from trimaran.serving.triton.states import start_ticks

_DOWN_DEADLINE_S = 90.0
_READY_DEADLINE_S = 60.0
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Ready:
    """What answers now, and how to ask it."""

    url: str
    name: str
    task: str
    triton: Running

    @property
    def curl(self) -> str:
        """A line for a shell; empty for a task that the gateway has no route for."""
        route = route_of_task(self.task)
        if route is None or route.request is None:
            return ""
        labels = {"labels": ["weather", "money"]} if self.task == "zero-shot-classification" else {}
        body = json.dumps({**route.request.example, "model": self.name, **labels})
        url = f"{self.url}{route.path}"
        return shlex.join(["curl", "-s", url, "-H", "content-type: application/json", "-d", body])

    @property
    def python(self) -> str:
        return f'import trimaran; model = trimaran.load("{self.name}", repository="{self.triton.repository}")'


def up(
    config: DeployConfig,
    *,
    host: str,
    port: int,
    store: Store,
    progress: Progress,
    on_ready: Callable[[Ready], None],
) -> None:
    """Deploys the model unless it is deployed already, serves it with a gateway, and ends both on SIGINT or SIGTERM.

    A server that already runs over the repository is used, and left running. Raises UsageError for a port in use.
    """
    repository = Path(config.output).absolute()
    # Before the deployment, which takes minutes.
    require_possible(host, port)
    name = deployed_name(config, store, progress)
    with _sigterm_as_interrupt(), _server(repository, name) as triton:
        settings = GatewaySettings(
            repository=repository,
            triton_url=f"127.0.0.1:{triton.grpc_port}",
            host=host,
            port=port,
            keys=None,
            access_log=default_home() / "logs" / "gateway.log",
        )

        def ready(chosen: int) -> None:
            url = f"http://{host}:{chosen}"
            pid = os.getpid()
            state = UpState(pid=pid, started_ticks=start_ticks(pid) or 0, url=url, repository=repository, name=name)
            write_atomically(state.path, state.model_dump_json() + "\n")
            ended.callback(state.remove)
            answering = Ready(url, name, read_config(repository / name / CONFIG_FILE).task, triton)
            # In a thread: the gateway's own loop must go on, so that it can become ready.
            threading.Thread(target=lambda: _when_ready(url, lambda: on_ready(answering)), daemon=True).start()

        with contextlib.ExitStack() as ended:
            serve_gateway(settings, on_ready=ready)


def down() -> tuple[UpState, ...]:
    """Ends every `trimaran up` of this user; returns them when they are gone."""
    states = ups()
    for state in states:
        state.send(signal.SIGTERM)
    end = time.monotonic() + _DOWN_DEADLINE_S
    while any(state.alive for state in states) and time.monotonic() < end:
        time.sleep(0.05)
    return states


def deployed_name(config: DeployConfig, store: Store, progress: Progress) -> str:
    """The name under which the model is deployed: as it was typed, or after a deployment of the folder."""
    repository = Path(config.output).absolute()
    if not Path(config.model).exists() and (repository / config.model / CONFIG_FILE).is_file():
        return config.model
    ref = find_model(config)
    name = config.name or ref.name
    if _is_deployed(repository, name, ref, store):
        progress.note(f"{name} is deployed in {repository} already, from the same files.")
        return name
    result = deploy(config, store=store, progress=progress, command=("trimaran", "up", config.model))
    return result.deployment.name


def _is_deployed(repository: Path, name: str, ref: ModelRef, store: Store) -> bool:
    """Whether the served version of `name` was made from these very files for this task."""
    if not (repository / name / CONFIG_FILE).is_file():
        return False
    line = store.lineage(load_artifact(served_version(repository, name), verify=False))
    origins = [model_ref_of(ancestor) for ancestor in line if ancestor.format == "torch"]
    adopted = [artifact.recipe.parameters for artifact in line if artifact.recipe.step == "adopted"]
    made_from = {(origin.digest, origin.task) for origin in origins} | {
        (artifact["model"], artifact["task"]) for artifact in adopted
    }
    return (ref.digest, ref.task) in made_from


def _when_ready(url: str, announce: Callable[[], None]) -> None:
    """Announces once the gateway has had an answer from every model."""
    end = time.monotonic() + _READY_DEADLINE_S
    while time.monotonic() < end:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/readyz", timeout=5):  # noqa: S310  (our own)
            announce()
            return
        time.sleep(0.1)
    log.warning("The gateway at %s is not ready after %g s; %s/readyz says why.", url, _READY_DEADLINE_S, url)


@contextlib.contextmanager
def _server(repository: Path, name: str) -> Iterator[Running]:
    """The live server of the repository, or one of its own, which is ended afterwards."""
    if live := [state for state in running() if state.repository == repository]:
        # It may have been started before the model, or the version, was there.
        load_on_servers(repository, name)
        yield live[0]
        return
    try:
        yield serve_detached(repository)
    finally:
        stop(repository)


@contextlib.contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """`trimaran down` ends it as Ctrl-C does. uvicorn raises the signal again after its own end."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
