"""Versions that `trimaran deploy --target` prepared: whether they are whole, and what they still lack."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trimaran.core.errors import IntegrityError
from trimaran.core.repository import versions_of
from trimaran.core.spec import Frozen
from trimaran.judging.prepared import PREPARED_FILE, read_prepared, verify_prepared
from trimaran.model_repository.problem import Problem, problem


class PreparedState(Frozen):
    """A version that is sound, but was never run on a GPU."""

    name: str
    version: int
    targets: tuple[str, ...]
    missing: tuple[str, ...]

    def __str__(self) -> str:
        targets = ", ".join(self.targets)
        missing = "; ".join(self.missing)
        return (
            f"{self.name} version {self.version} is prepared for {targets}. Missing: {missing}. "
            "Run `trimaran finish` on the machine with the GPU."
        )


def prepared_problems(version: Path) -> Iterator[Problem]:
    """What is damaged in a prepared version; nothing for any other."""
    path = version / PREPARED_FILE
    if not path.is_file():
        return
    try:
        verify_prepared(version, read_prepared(version))
    except IntegrityError as error:
        yield problem("prepared-damaged", path, error.message)


def prepared_states(repository: Path) -> tuple[PreparedState, ...]:
    """The newest version of each model, where it is a prepared one that can be read."""
    states = []
    for model in sorted(path for path in repository.iterdir() if path.is_dir()) if repository.is_dir() else ():
        versions = versions_of(model)
        if not versions or not (model / str(versions[-1]) / PREPARED_FILE).is_file():
            continue
        prepared = read_prepared(model / str(versions[-1]))
        missing = ["a plan that TensorRT built on the serving machine", "answers and times of a GPU"]
        if prepared.unbuilt:
            missing.append(f"any plan for {', '.join(prepared.unbuilt)}")
        states.append(
            PreparedState(name=model.name, version=versions[-1], targets=prepared.targets, missing=tuple(missing))
        )
    return tuple(states)
