"""What `trimaran finish` leaves behind: on which machine a prepared version was finished, and what was found there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Literal

from trimaran.core.artifact import Check
from trimaran.core.engine_identity import EngineIdentity
from trimaran.core.environment import Environment
from trimaran.core.persisted import Persisted
from trimaran.core.repository import versions_of
from trimaran.core.spec import Frozen, Precision
from trimaran.judging.judgement import Quality
from trimaran.runtime.tensorrt_engine import PLAN_FOLDERS

FINISHED_FILE = "finished.json"


class FinishedCandidate(Frozen):
    """What became of one prepared graph on this GPU."""

    name: str
    precision: Precision
    verdict: Literal["chosen", "passed", "rejected", "failed"]
    # One sentence why it has this verdict.
    reason: str
    build_s: float | None = None
    # Which kernels of the plan run in which type.
    receipt: tuple[Check, ...] = ()
    quality: Quality | None = None
    # By shape: the median of a call, copies included, by the host's clock.
    measured_ms: dict[str, float] = {}
    # By shape: the GPU's own time by events, of a call without CUDA graphs: `copy_in`, `kernels`, `copy_out`.
    gpu_ms: dict[str, dict[str, float]] = {}
    # What the open plan holds of the GPU's memory, beside the CUDA context of its process.
    gpu_memory_bytes: int | None = None


class Finished(Persisted):
    """`finished.json`: the machine, the plans that were built and judged on it, and the one that is served."""

    what: ClassVar[str] = "finished version"
    remedy: ClassVar[str] = "Run `trimaran finish` again."
    indent: ClassVar[int | None] = 1

    created: str
    trimaran: str
    model: str
    # The prepared version, and the digest of its `prepared.json`.
    prepared_version: int
    prepared_sha256: str
    identity: EngineIdentity
    environment: Environment
    command: tuple[str, ...]
    candidates: tuple[FinishedCandidate, ...]
    # Eager PyTorch on the same GPU, by shape; empty where it was not measured, and a note says why.
    eager_ms: dict[str, float] = {}
    chosen: str
    # The result in two sentences.
    headline: str
    notes: tuple[str, ...] = ()

    @property
    def folder(self) -> str:
        """The name of this machine's plan folder."""
        return self.identity.folder


def finished_in(version: Path) -> Iterator[tuple[Path, Finished]]:
    """The plans of a version, each in its folder: that of the machine which made the version, and of others."""
    for path in (version / FINISHED_FILE, *sorted((version / PLAN_FOLDERS).glob(f"*/{FINISHED_FILE}"))):
        if path.is_file():
            yield path.parent, Finished.read(path)


def finished_versions(model: Path, prepared_sha256: str) -> Iterator[tuple[int, Path, Finished]]:
    """The plans that were made of one preparation, those of the newest version first."""
    for version in reversed(versions_of(model)):
        for folder, finished in finished_in(model / str(version)):
            if finished.prepared_sha256 == prepared_sha256:
                yield version, folder, finished
