"""The servers alone, asked by ordinary clients: every server by every client that can speak to it, in turns.

`python benchmarks/peers/run.py --servers-only` keeps benchmarks/results/servers.json, in about a quarter of an hour.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import perf_tool
from clients import CLIENTS, OPENAI, TRITON_GRPC, TRITON_HTTP, sweep
from race import Race, opened, prepare, version_of
from results import ServersRun
from table import Peer

import trimaran
from trimaran.benchmarks.scenarios.results import ClosedLoop, ClosedPoint
from trimaran.benchmarks.scenarios.settings import ClosedLoopSettings
from trimaran.core.corpus import digest_of_texts
from trimaran.core.environment import capture
from trimaran.core.environment import version_of as installed_version
from trimaran.core.errors import TrimaranError, UnavailableError
from trimaran.core.isolation import Worker
from trimaran.core.progress import Progress
from trimaran.serving.triton.server import launch

CALLERS = (1, 8, 32, 128)
FULL = ClosedLoopSettings(scenario="closed-loop", concurrency=CALLERS, samples=50, time_s=2.0, limit_s=120.0)
FULL_TURNS = 5
QUICK = ClosedLoopSettings(scenario="closed-loop", concurrency=(1, 8), samples=8, time_s=0.3, limit_s=60.0)
MODEL = "minilm"
_READY_S = 60.0
Sweep = Callable[[ClosedLoopSettings], Sequence[dict[str, Any]]]


@dataclass(frozen=True)
class ServedPlace:
    """One way into a running server."""

    # As the page names it.
    server: str
    # A key of `Client.speaks`.
    way: str
    # host:port, or the folder of a version.
    url: str


def measure_servers(
    repository: Path, peers: Sequence[Peer], race: Race, *, asked: ClosedLoopSettings, turns: int, progress: Progress
) -> ServersRun:
    """A server or client that cannot run here is a result without points that says why."""
    loads: list[ClosedLoop] = []
    versions = {client.name: installed_version(client.library) or "" for client in CLIENTS.values()}
    generator = np.random.default_rng(0)
    with ExitStack() as stack:
        places: list[ServedPlace] = []
        with progress.stage("start the servers") as step:
            places += stack.enter_context(ourselves(repository))
            for peer in peers:
                try:
                    prepare(peer, race)
                    process = stack.enter_context(opened(peer, race))
                    places.append(ServedPlace(peer.name, OPENAI, process.place()["url"]))
                    versions[peer.name] = version_of(peer, race)
                except TrimaranError as error:
                    loads.append(_without_points(peer.name, "", race, error))
            step.outcome(", ".join(dict.fromkeys(place.server for place in places)))
        rows = [(place, name, ask) for place in places for name, ask in _sweeps(place, race)]
        with progress.stage("load") as step:
            for turn in range(turns):
                for index in generator.permutation(len(rows)):
                    place, client, ask = rows[index]
                    step.advance(len(loads), turns * len(rows), f"turn {turn + 1}, {place.server} by {client}")
                    try:
                        points = tuple(ClosedPoint.model_validate(point) for point in ask(_asked_of(place, asked)))
                        loads.append(_load(place.server, client, race, points))
                    except TrimaranError as error:
                        loads.append(_without_points(place.server, client, race, error))
            step.outcome(f"{len(rows)} rows, {turns} turns")
    return ServersRun(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        trimaran=trimaran.__version__,
        model="all-MiniLM-L6-v2",
        environment=capture(),
        threads=race.threads,
        texts=len(race.callers_texts),
        texts_digest=digest_of_texts(race.callers_texts),
        versions=versions,
        loads=tuple(loads),
    )


@contextmanager
def ourselves(repository: Path) -> Iterator[list[ServedPlace]]:
    """Triton over the repository, a gateway before it, and the same version without a server."""
    with launch(repository) as server, gateway(repository, server.grpc_url) as gateway_url:
        version = max(int(path.name) for path in (repository / MODEL).iterdir() if path.name.isdigit())
        yield [
            ServedPlace("trimaran", "folder", str(repository / MODEL / str(version))),
            ServedPlace("trimaran, gateway", OPENAI, gateway_url),
            ServedPlace("trimaran, Triton", TRITON_HTTP, server.http_url),
            ServedPlace("trimaran, Triton", TRITON_GRPC, server.grpc_url),
        ]


@contextmanager
def gateway(repository: Path, triton: str) -> Iterator[str]:
    """host:port of a gateway as it is started by default, without keys."""
    command = [sys.executable, "-m", "trimaran", "gateway", "--repository", str(repository), "--url", triton]
    command += ["--port", "0", "--no-auth", "--json", "--access-log", os.devnull]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = str(json.loads(process.stdout.readline())["url"]).removeprefix("http://")
            _wait_until_ready(url)
            yield url
        finally:
            process.terminate()


def _wait_until_ready(url: str) -> None:
    import http.client

    end_s = time.monotonic() + _READY_S
    while time.monotonic() < end_s:
        connection = http.client.HTTPConnection(url, timeout=5)
        connection.request("GET", "/readyz")
        if connection.getresponse().status == http.client.OK:
            return
        time.sleep(0.1)
    raise UnavailableError(f"The gateway was not ready within {_READY_S:g} s.")


def _sweeps(place: ServedPlace, race: Race) -> Iterator[tuple[str, Sweep]]:
    """Every client that can speak to this place, with what makes its load."""
    texts = race.path("callers", race.callers_texts)

    def by_client(name: str) -> Sweep:
        def ask(asked: ClosedLoopSettings) -> Sequence[dict[str, Any]]:
            settings = {"samples": asked.samples, "time_s": asked.time_s, "limit_s": asked.limit_s}
            with Worker(environment={"PYTHONPATH": _scripts()}) as worker:
                return worker.call(
                    sweep,
                    asked.limit_s * len(asked.concurrency) + 120.0,
                    client=name,
                    way=place.way,
                    url=place.url,
                    model=MODEL,
                    texts_path=texts,
                    callers=list(asked.concurrency),
                    **settings,
                )

        return ask

    def by_perf_analyzer(asked: ClosedLoopSettings) -> Sequence[dict[str, Any]]:
        folder = race.work / "perf-analyzer"
        folder.mkdir(exist_ok=True)
        options = {"time_s": asked.time_s, "limit_s": asked.limit_s}
        return [
            perf_tool.closed_loop(MODEL, place.way, place.url, race.callers_texts, folder, callers=callers, **options)
            for callers in asked.concurrency
        ]

    yield from ((client.name, by_client(client.name)) for client in CLIENTS.values() if _can_ask(client.name, place))
    if place.way in (TRITON_GRPC, TRITON_HTTP):
        yield f"perf_analyzer {'gRPC' if place.way == TRITON_GRPC else 'HTTP'}", by_perf_analyzer


def _can_ask(name: str, place: ServedPlace) -> bool:
    return place.way in CLIENTS[name].speaks


def _asked_of(place: ServedPlace, asked: ClosedLoopSettings) -> ClosedLoopSettings:
    """In process there is one caller."""
    return asked.model_copy(update={"concurrency": (1,)}) if place.way == "folder" else asked


def _scripts() -> str:
    here = Path(__file__).parent
    return os.pathsep.join([str(here.parent.parent), str(here)])


def _load(server: str, client: str, race: Race, points: tuple[ClosedPoint, ...]) -> ClosedLoop:
    return ClosedLoop(candidate=server, driver=client, at="served", threads=race.threads, points=points)


def _without_points(server: str, client: str, race: Race, error: TrimaranError) -> ClosedLoop:
    return _load(server, client, race, ()).model_copy(update={"cut": error.message, "cut_by": "server"})
