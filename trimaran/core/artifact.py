"""An artifact: the files that a stage made, with a manifest of how they were made and what was proven."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import PrivateAttr

from trimaran.core.allowed import BackendName, PathInside, StoredEngineOptions, Variables
from trimaran.core.environment import Environment
from trimaran.core.errors import IntegrityError, UsageError
from trimaran.core.persisted import Persisted
from trimaran.core.spec import Format, Frozen, Precision, ShapeProfile, Signature, TokenizerSpec

MANIFEST = "manifest.json"


class Recipe(Frozen):
    """Identity and cache key: the same recipe is the same artifact, even where a builder's bytes differ."""

    step: str
    # Digests of the recipes that this one starts from.
    parents: tuple[str, ...] = ()
    parameters: dict[str, Any] = {}
    # Versions of the libraries that made it.
    tools: dict[str, str] = {}

    @property
    def digest(self) -> str:
        return digest_of(self.model_dump(mode="json"))


class FileEntry(Frozen):
    name: PathInside
    size_bytes: int
    sha256: str


class Check(Frozen):
    """One thing that was proven: the `observed` number compared with its `limit`."""

    name: str
    observed: float | int | str
    limit: float | int | str
    comparison: Literal["<=", ">=", "=="] = "<="
    detail: str = ""

    @property
    def holds(self) -> bool:
        return kept(self.observed, self.comparison, self.limit)

    def __str__(self) -> str:
        # Of the plain value: statistics may allow few texts to lie beyond a limit.
        signs = {"<=": "≤>", ">=": "≥<", "==": "=≠"}[self.comparison]
        sign = signs[0 if kept(self.observed, self.comparison, self.limit) else 1]
        return f"{self.name} {_short(self.observed)} {sign} {_short(self.limit)} {self.detail}".rstrip()


class Draft(Frozen):
    """What a stage knows of its result before the store hashes and publishes it."""

    name: str
    format: Format
    precision: Precision
    # The engine that runs it, such as `onnxruntime`.
    backend: BackendName
    task: str
    family: str
    signature: Signature
    profile: ShapeProfile
    tokenizer: TokenizerSpec
    labels: tuple[str, ...] = ()
    # The file that its backend opens.
    entry: PathInside
    engine_options: StoredEngineOptions = {}
    # Environment variables that the engine was proven with.
    execution_environment: Variables = {}
    checks: tuple[Check, ...] = ()
    details: dict[str, Any] = {}


class Artifact(Persisted, Draft):
    """A published, validated result."""

    what: ClassVar[str] = "manifest"
    indent: ClassVar[int | None] = 2

    recipe: Recipe
    files: tuple[FileEntry, ...]
    environment: Environment
    _directory: Path = PrivateAttr(default=Path())

    @property
    def directory(self) -> Path:
        return self._directory

    @property
    def digest(self) -> str:
        return self.recipe.digest

    def derive(self, folder: Path, *, details: dict[str, Any], **changes: Any) -> Draft:
        """Draft what a stage made of this artifact in `folder`: the same but for the changes, with further details.

        The tokenizer is copied beside it.
        """
        shutil.copy(self.directory / "tokenizer.json", folder / "tokenizer.json")
        same = self.model_dump(include=set(Draft.model_fields))
        return Draft(**{**same, **changes, "details": {**self.details, **details}})

    @property
    def entry_path(self) -> Path:
        return self._directory / self.entry

    @property
    def size_bytes(self) -> int:
        """Bytes that the engine reads. The tokenizer does not count: it is the same for every candidate."""
        return sum(file.size_bytes for file in self.files if not file.name.startswith("tokenizer"))

    def at(self, directory: Path) -> Artifact:
        self._directory = directory
        return self


def load_artifact(directory: Path, *, verify: bool = True) -> Artifact:
    """Reads a manifest and, with `verify`, compares every file with it."""
    path = directory / MANIFEST
    if not path.is_file():
        raise UsageError(f"{directory} is not an artifact: it has no {MANIFEST}.", hint="`trimaran export` makes one.")
    artifact = Artifact.read(path).at(directory)
    if verify:
        verify_files(artifact)
    return artifact


def verify_files(artifact: Artifact) -> None:
    """Raises IntegrityError for a file that is missing or differs from the manifest."""
    for entry in artifact.files:
        path = artifact.directory / entry.name
        if not path.is_file():
            raise IntegrityError(f"{path} is missing; the manifest lists it.", hint="Run the stage with --force.")
        size = path.stat().st_size
        if size != entry.size_bytes:
            raise IntegrityError(
                f"{path} has {size} bytes, its manifest says {entry.size_bytes}.",
                hint="Run the stage with --force.",
            )
        digest = sha256_of(path)
        if digest != entry.sha256:
            raise IntegrityError(
                f"{path} differs from its manifest (sha256 {digest[:12]}…, wanted {entry.sha256[:12]}…).",
                hint="It was damaged or edited: run the stage with --force to make it again.",
                path=str(path),
            )


def file_entries(directory: Path) -> tuple[FileEntry, ...]:
    paths = sorted(path for path in directory.rglob("*") if path.is_file() and path.name != MANIFEST)
    return tuple(
        FileEntry(
            name=path.relative_to(directory).as_posix(),
            size_bytes=path.stat().st_size,
            sha256=sha256_of(path),
        )
        for path in paths
    )


def sha256_of(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def digest_of(value: Any) -> str:
    """The digest of a JSON value, independent of key order and spacing."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def kept(observed: float | int | str, comparison: str, limit: float | int | str) -> bool:
    if comparison == "==":
        return observed == limit
    if isinstance(observed, str) or isinstance(limit, str):
        return False
    return observed <= limit if comparison == "<=" else observed >= limit


def _short(value: float | int | str) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
