"""Runs every peer through trimaran's harness: a process each, interleaved rounds, the same texts, threads and cores."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from peer_probe import PeerProbe
from peer_probe import prepare as prepare_peer
from table import HERE, ROOT, Peer

from trimaran.benchmarks.measure.runner import Effort, Measured, RaceEntry, measure
from trimaran.core.environment import version_of as installed_version
from trimaran.core.errors import TrimaranError, UnavailableError
from trimaran.core.isolation import Worker, first_restriction_that_runs
from trimaran.core.progress import Step
from trimaran.core.proof_effort import USUAL
from trimaran.core.samples import Round, Shape
from trimaran.core.tasks.embedding import TASK as EMBEDDING
from trimaran.judging.probe_process import REST_LIMIT_S, thread_environment

BATCH = 32
# A first answer is correct when it is this near the reference's: INT8 may differ, another model may not.
CORRECT = 0.05
PREPARE_S, OPEN_S, CALL_S = 900.0, 180.0, 300.0


@dataclass(frozen=True)
class Race:
    """What all contenders share: where things are, the texts of each shape, threads and pinned cores."""

    model: Path
    work: Path
    texts: Mapping[Shape, Sequence[str]]
    judging: Sequence[str]
    calibration: Sequence[str]
    callers_texts: Sequence[str]
    threads: int
    cores: tuple[int, ...]
    restrictions: dict[str, dict[str, str]] = field(default_factory=dict)

    def path(self, name: str, texts: Sequence[str]) -> str:
        path = self.work / f"{name}.json"
        path.write_text(json.dumps(list(texts)), encoding="utf-8")
        return str(path)


@dataclass(frozen=True)
class _Named:
    """What the harness asks of an artifact here: its identity."""

    digest: str


class PeerProcess:
    """A peer in a process of its own environment; one of the harness's `Timing`s."""

    def __init__(self, peer: Peer, race: Race) -> None:
        self._race = race
        self._worker = Worker(environment=_environment(peer, race), python=peer.python)
        try:
            self._probe = self._worker.hold(
                PeerProbe,
                OPEN_S,
                script=peer.script,
                model=str(race.model),
                work=str(race.work / peer.work),
                threads=race.threads,
                cores=list(race.cores),
                options=peer.options,
            )
            self.load_s = float(self._call(PeerProbe.load_s))
            self.peak_memory_bytes = int(self._call(PeerProbe.memory_bytes))
        except BaseException:  # nobody else knows the child yet, so none is left behind
            self._worker.close()
            raise

    def answers(self, texts: Sequence[str], *, batch: int) -> np.ndarray:
        result = self._race.work / f"answers-{os.getpid()}.npy"
        path = self._race.path("asked", texts)
        self._call(PeerProbe.answers, texts_path=path, result_path=str(result), batch=batch)
        vectors = np.load(result)
        result.unlink()
        return vectors

    def measure(self, shape: Shape, rows: str, *, repeat: int = 1, **effort: Any) -> Round:
        path = self._race.path(f"texts-{shape}", self._race.texts[shape])
        return Round(**self._call(PeerProbe.measure, texts_path=path, **effort))

    def place(self) -> dict[str, str]:
        """Where a peer that is a server listens."""
        return dict(self._call(PeerProbe.place))

    def rest(self) -> None:
        self._call(PeerProbe.rest, limit_s=REST_LIMIT_S)
        self.peak_memory_bytes = int(self._call(PeerProbe.memory_bytes))

    def close(self) -> None:
        with suppress(TrimaranError):
            self._call(PeerProbe.close)
        self._worker.close()

    def _call(self, method: Callable[..., Any], **arguments: Any) -> Any:
        return self._probe.call(method, CALL_S, **arguments)


@contextmanager
def opened(peer: Peer, race: Race) -> Iterator[PeerProcess]:
    process = PeerProcess(peer, race)
    try:
        yield process
    finally:
        process.close()


def prepare(peer: Peer, race: Race) -> None:
    """Exports and quantises once, outside of every figure. Raises TrimaranError with why the peer cannot run here."""
    if peer.environment is None:
        return
    if peer.python is None or not peer.python.exists():
        raise UnavailableError(f"Its environment .envs/{peer.environment} is not there.", hint="Run `make peers`.")
    arguments = {
        "script": peer.script,
        "model": str(race.model),
        "work": str(race.work / peer.work),
        "texts_path": race.path("calibration", race.calibration),
        "options": peer.options,
    }

    def attempt(restriction: dict[str, str]) -> None:
        with Worker(environment={**_environment(peer, race), **restriction}, python=peer.python) as worker:
            worker.call(prepare_peer, PREPARE_S, **arguments)

    _, race.restrictions[peer.name] = first_restriction_that_runs(attempt)


def judge(peer: Peer, race: Race, reference: np.ndarray | None) -> tuple[np.ndarray, dict[str, float]]:
    """Its vectors, each text asked alone, and how near they are to the reference and to themselves in a batch.

    Settles under which instruction set the peer runs: an advertised instruction that does not execute kills it here.
    """
    sample = [int(i) for i in np.random.default_rng(20).permutation(len(race.judging))[: USUAL.certificate_texts]]

    def attempt(restriction: dict[str, str]) -> tuple[np.ndarray, np.ndarray]:
        race.restrictions[peer.name] = {**race.restrictions.get(peer.name, {}), **restriction}
        with opened(peer, race) as process:
            return (
                process.answers(race.judging, batch=1),
                process.answers([race.judging[i] for i in sample], batch=BATCH),
            )

    (alone, together), _ = first_restriction_that_runs(attempt)
    base = alone if reference is None else reference
    metrics = EMBEDDING.fidelity({"embedding": base}, {"embedding": alone})
    metrics["batch_change"] = EMBEDDING.change.value({"embedding": alone[sample]}, {"embedding": together})
    return alone, metrics


def cold_starts(peer: Peer, race: Race, reference: np.ndarray, *, times: int) -> tuple[int, ...]:
    """Nanoseconds from the start of the process to the first answer, of those starts whose answer was correct."""
    found = []
    for _ in range(times):
        begun_ns = time.perf_counter_ns()
        process = PeerProcess(peer, race)
        try:
            vector = process.answers(race.judging[:1], batch=1)[0]
            elapsed_ns = time.perf_counter_ns() - begun_ns
        finally:
            process.close()
        base = reference[0]
        if 1 - vector @ base / (np.linalg.norm(vector) * np.linalg.norm(base)) <= CORRECT:
            found.append(elapsed_ns)
    return tuple(found)


def timed(peers: Sequence[Peer], race: Race, *, effort: Effort, step: Step | None = None) -> Measured:
    """All peers in one interleaved run."""
    table = {peer.name: peer for peer in peers}
    entries = [RaceEntry(peer.name, _Named(peer.name)) for peer in peers]  # type: ignore[arg-type]
    return measure(
        entries,
        tuple(race.texts),
        threads=race.threads,
        cores=race.cores,
        effort=effort,
        step=step,
        open_probe=lambda entry: opened(table[entry.name], race),  # type: ignore[arg-type,return-value]
    )


def version_of(peer: Peer, race: Race) -> str:
    """Asked of the peer's own environment."""
    with Worker(environment=_environment(peer, race), python=peer.python) as worker:
        return str(worker.call(installed_version, CALL_S, peer.library))


def _environment(peer: Peer, race: Race) -> dict[str, str]:
    return {
        **thread_environment(race.threads),
        "PYTHONPATH": f"{ROOT}{os.pathsep}{HERE}",
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_CACHE": str(race.work / "datasets"),
        **race.restrictions.get(peer.name, {}),
    }
