"""What `trimaran deploy --target` leaves behind: graphs proven on the CPU, and predictions for absent GPUs.

A prepared version holds `prepared.json` and the folder `prepared/`:

    prepared/judging.json              the judging texts
    prepared/eager.npz                 eager PyTorch's outputs for them
    prepared/candidates/NAME/          each graph that keeps its gates, as an artifact
    prepared/plans/NAME-TARGET/        the tensorrt_rtx plans of the chosen graph
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from trimaran.core.artifact import Check, FileEntry, sha256_of
from trimaran.core.choices import Level, Objective
from trimaran.core.environment import Environment
from trimaran.core.errors import IntegrityError
from trimaran.core.persisted import Persisted
from trimaran.core.samples import Shape
from trimaran.core.spec import Frozen, Precision, ShapeProfile
from trimaran.core.tasks import Gate
from trimaran.judging.judgement import Quality
from trimaran.judging.probe import read_texts
from trimaran.runtime.text import Array, Text

PREPARED_FILE = "prepared.json"
PREPARED_FOLDER = "prepared"
_TEXTS, _ANSWERS = "judging.json", "eager.npz"


class Prediction(Frozen):
    """A lower bound by the roofline. Nothing of it was measured."""

    # The GPU whose data sheet was used.
    gpu: str
    shape: Shape
    predicted_ms: float


class TargetBuild(Frozen):
    """What became of one graph for one compute capability."""

    target: str
    # The builder, such as `tensorrt_rtx 1.7.1.116`.
    builder: str
    built: bool
    # Why there is no plan; empty if there is one.
    reason: str = ""
    # Which kernels of the plan run in which type.
    receipt: tuple[Check, ...] = ()
    # The compute capability whose kernels the predictions are for; another one stands in where nothing could be built.
    kernels_for: str = ""
    predictions: tuple[Prediction, ...] = ()


class PreparedCandidate(Frozen):
    name: str
    precision: Precision
    verdict: Literal["chosen", "passed", "rejected", "failed"]
    # One sentence why it has this verdict.
    reason: str
    # The answers of the graph on this machine's CPU, compared with eager PyTorch's.
    quality: Quality | None = None
    size_bytes: int | None = None
    builds: tuple[TargetBuild, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether it travels in the prepared version."""
        return self.verdict in ("chosen", "passed")


class Prepared(Persisted):
    """`prepared.json`: what was asked, proven on the CPU, built and predicted. No time in it was measured."""

    what: ClassVar[str] = "prepared version"
    remedy: ClassVar[str] = "Prepare the model again: trimaran deploy --target."
    indent: ClassVar[int | None] = 1

    state: Literal["prepared"] = "prepared"
    created: str
    trimaran: str
    model: str
    task: str
    family: str
    level: Level
    gates: tuple[Gate, ...]
    objective: Objective
    profile: ShapeProfile
    environment: Environment
    command: tuple[str, ...]
    targets: tuple[str, ...]
    candidates: tuple[PreparedCandidate, ...]
    chosen: str
    # The result in two sentences.
    headline: str
    notes: tuple[str, ...] = ()
    # What lies in `prepared/`.
    files: tuple[FileEntry, ...] = ()

    @property
    def unbuilt(self) -> tuple[str, ...]:
        """Targets for which the chosen graph has no plan yet."""
        builds = next(row for row in self.candidates if row.name == self.chosen).builds
        return tuple(build.target for build in builds if not build.built)


def read_prepared(version: Path) -> Prepared:
    """`version` is a version folder. Raises IntegrityError for a damaged file."""
    return Prepared.read(version / PREPARED_FILE)


def write_judging(folder: Path, texts: Sequence[Text], answers: Mapping[str, Array]) -> None:
    """Keep the judging texts with eager PyTorch's outputs, so that a machine without PyTorch can judge by them."""
    (folder / _TEXTS).write_text(json.dumps(list(texts), ensure_ascii=False), encoding="utf-8")
    arrays: dict[str, Any] = dict(answers)
    np.savez_compressed(folder / _ANSWERS, **arrays)


def read_judging(folder: Path) -> tuple[list[Text], dict[str, Array]]:
    with np.load(folder / _ANSWERS) as arrays:
        return read_texts(folder / _TEXTS), {name: arrays[name] for name in arrays.files}


def verify_prepared(version: Path, prepared: Prepared) -> None:
    """Raise IntegrityError for a file of `prepared/` that is missing or was changed."""
    for entry in prepared.files:
        path = version / PREPARED_FOLDER / entry.name
        if not path.is_file():
            raise IntegrityError(f"{path} is missing; {PREPARED_FILE} lists it.", hint=Prepared.remedy, path=str(path))
        if path.stat().st_size != entry.size_bytes or sha256_of(path) != entry.sha256:
            raise IntegrityError(
                f"{path} differs from {PREPARED_FILE} (wanted sha256 {entry.sha256[:12]}…).",
                hint=Prepared.remedy,
                path=str(path),
            )
