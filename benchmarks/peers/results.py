"""What one run of the peers found, as it is committed; every number of the page is computed from it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, Field
from table import ROOT

from trimaran.benchmarks.measure.measurement import Measurement
from trimaran.benchmarks.report.report import json_of
from trimaran.benchmarks.scenarios.results import ClosedLoop
from trimaran.core.environment import Environment
from trimaran.core.samples import Shape
from trimaran.core.spec import Frozen

RESULT = ROOT / "benchmarks" / "results" / "peers.json"
SERVERS_RESULT = RESULT.with_name("servers.json")


class TextSet(Frozen):
    """The texts that one shape stands for: `tokens` counts them all, [CLS] and [SEP] included."""

    shape: Shape
    words: str
    tokens: int
    digest: str


class PeerRow(Frozen):
    """One peer. `failure` says why it could not run here, or not to the end."""

    name: str
    library: str
    version: str | None
    describe: str
    failure: str | None = None
    metrics: dict[str, float] = {}
    memory_bytes: int | None = None
    cold_starts_ns: tuple[int, ...] = ()
    execution_environment: dict[str, str] = {}


class KeptRun(Frozen):
    """What every result says of its run."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    schema_version: Literal[1] = Field(default=1, alias="schema")
    created: str
    trimaran: str
    model: str
    environment: Environment
    threads: int

    def to_json(self) -> str:
        return json_of(self)


class PeersRun(KeptRun):
    cores: tuple[int, ...]
    reference: str
    judging_texts: int
    judging_digest: str
    sets: tuple[TextSet, ...]
    peers: tuple[PeerRow, ...]
    measurements: tuple[Measurement, ...]
    # One a server and turn: callers of one text each.
    loads: tuple[ClosedLoop, ...] = ()
    # Share of those cores that other processes used meanwhile.
    others_share: float | None = None


class ServersRun(KeptRun):
    """The servers alone, asked by ordinary clients."""

    # How many texts the callers send in turn, and which.
    texts: int
    texts_digest: str
    # Of clients and of the other servers, by name.
    versions: dict[str, str]
    # One a server, client and turn: `candidate` is the server, `driver` the client.
    loads: tuple[ClosedLoop, ...]


def read_servers(path: Path = SERVERS_RESULT) -> ServersRun | None:
    """None where the servers were not measured by themselves yet."""
    return ServersRun.model_validate_json(path.read_text(encoding="utf-8")) if path.is_file() else None


def read_result(path: Path = RESULT) -> PeersRun:
    return PeersRun.model_validate_json(path.read_text(encoding="utf-8"))
