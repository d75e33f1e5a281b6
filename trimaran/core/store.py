"""The store of artifacts. An artifact is made in a temporary folder, hashed, and published by one rename."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel
from pydantic import ValidationError as SchemaError

from trimaran.core.artifact import MANIFEST, Artifact, Draft, Recipe, file_entries, load_artifact
from trimaran.core.environment import capture
from trimaran.core.errors import TrimaranError, UnavailableError, UsageError

HOME_VARIABLE = "TRIMARAN_HOME"
NO_SPACE = {errno.ENOSPC, errno.EDQUOT}
_TEMPORARY = ".making-"
_TOO_LITTLE_BYTES = 64 << 10
Fact = TypeVar("Fact", bound=BaseModel)


def default_home() -> Path:
    """`$TRIMARAN_HOME`, or `trimaran` in the user's cache folder."""
    if home := os.environ.get(HOME_VARIABLE):
        return Path(home).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "trimaran"


class Store:
    """A folder of artifacts, each in a sub-folder named by step and recipe digest."""

    def __init__(self, root: Path, *, force: bool = False) -> None:
        self.root = root
        self.force = force

    def path_of(self, recipe: Recipe) -> Path:
        return self.root / f"{recipe.step}-{recipe.digest[:16]}"

    def find(self, recipe: Recipe) -> Artifact | None:
        """The artifact of this recipe, or None. Its files are compared with the manifest."""
        path = self.path_of(recipe)
        return load_artifact(path) if (path / MANIFEST).is_file() else None

    def produce(self, recipe: Recipe, make: Callable[[Path], Draft]) -> Artifact:
        """Runs `make` in a temporary folder and publishes the result; an earlier result of the recipe is reused."""
        if not self.force and (known := self.find(recipe)):
            return known
        with _full_disk_named(self.root), temporary_sibling(self.path_of(recipe)) as folder:
            draft = make(folder)
            artifact = Artifact(**draft.model_dump(), recipe=recipe, files=file_entries(folder), environment=capture())
            (folder / MANIFEST).write_text(artifact.to_json(), encoding="utf-8")
            publish(folder, self.path_of(recipe))
        return load_artifact(self.path_of(recipe), verify=False)

    def remember(
        self,
        recipe: Recipe,
        kind: type[Fact],
        compute: Callable[[], Fact],
        *,
        keep: Callable[[Fact], bool] | None = None,
    ) -> tuple[Fact, bool]:
        """A small result that is no artifact (a quality, a measurement), and whether it was known before.

        One that `keep` refuses is returned and not stored.
        """
        path = self.root / "records" / f"{recipe.step}-{recipe.digest[:16]}.json"
        if not self.force and path.is_file():
            with contextlib.suppress(SchemaError):
                return kind.model_validate_json(path.read_text(encoding="utf-8")), True
        fact = compute()
        if keep is None or keep(fact):
            write_atomically(path, fact.model_dump_json(by_alias=True) + "\n")
        return fact, False

    def remembered(self, step: str, kind: type[Fact]) -> list[Fact]:
        """All results of a step that are remembered, the latest first, without those that can no longer be read."""
        paths = (self.root / "records").glob(f"{step}-*.json")
        facts = []
        for path in sorted(paths, key=lambda path: path.stat().st_mtime, reverse=True):
            with contextlib.suppress(SchemaError):
                facts.append(kind.model_validate_json(path.read_text(encoding="utf-8")))
        return facts

    def open(self, reference: str) -> Artifact:
        """An artifact by its folder, its name in the store, or the beginning of its recipe's digest."""
        if Path(reference).is_dir():
            return load_artifact(Path(reference).absolute())
        matches = [artifact for artifact in self.artifacts() if _answers_to(artifact, reference)]
        if len(matches) == 1:
            return load_artifact(matches[0].directory)
        known = ", ".join(sorted(path.name for path in self._folders())) or "none"
        count = f"{len(matches)} artifacts match" if matches else "no artifact matches"
        raise UsageError(f"{count.capitalize()} {reference!r}.", hint=f"In {self.root}: {known}.")

    def lineage(self, artifact: Artifact) -> list[Artifact]:
        """The artifact and its ancestors, oldest last. It ends early where a parent is no longer stored."""
        known = {stored.digest: stored for stored in self.artifacts()}
        line = [artifact]
        while line[-1].recipe.parents and (parent := known.get(line[-1].recipe.parents[0])):
            line.append(parent)
        return line

    def artifacts(self) -> list[Artifact]:
        return [load_artifact(path, verify=False) for path in self._folders()]

    def _folders(self) -> list[Path]:
        if not self.root.is_dir():
            return []
        return sorted(
            path for path in self.root.iterdir() if not path.name.startswith(".") and (path / MANIFEST).is_file()
        )


def write_atomically(path: Path, text: str, *, mode: int = 0o666) -> None:
    """Replaces the file in one step: readers see the old text or the new one, also after a crash.

    The umask takes its bits from the `mode`, as usual.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def link_or_copy(source: Path, target: Path) -> None:
    """A hard link, so that both share one copy on disk; a copy where the file system cannot link."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        target.hardlink_to(source)
    except OSError:
        shutil.copyfile(source, target)


@contextlib.contextmanager
def locked(folder: Path, *, wait: bool = True) -> Iterator[None]:
    """Holds a lock on the folder, which is created if missing. The lock ends with the process.

    Without `wait`, raises BlockingIOError when another process holds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def temporary_sibling(target: Path) -> Iterator[Path]:
    """A folder beside `target` on the same file system. It is removed afterwards unless it was published."""
    target.parent.mkdir(parents=True, exist_ok=True)
    sweep(target.parent)
    folder = target.parent / f"{_TEMPORARY}{os.getpid()}-{uuid.uuid4().hex[:8]}"
    # The lock tells other containers, which do not see this process, that the folder is in use.
    with locked(folder):
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _full_disk_named(folder: Path) -> Iterator[None]:
    """Raises `disk_full` where the disk is the cause: exporters in C++ often report a full disk without saying so."""
    try:
        yield
    except Exception as error:
        full = isinstance(error, OSError) and error.errno in NO_SPACE
        existing = next(path for path in (folder, *folder.parents) if path.exists())
        if full or (not isinstance(error, TrimaranError) and shutil.disk_usage(existing).free < _TOO_LITTLE_BYTES):
            raise disk_full(folder) from error
        raise


def disk_full(where: object) -> UnavailableError:
    return UnavailableError(
        f"{where}: the disk is full.", hint=f"Free some space, or set {HOME_VARIABLE} to another disk."
    )


def publish(folder: Path, target: Path) -> None:
    """Renames the complete folder to `target`; a folder already there is replaced."""
    _sync(folder)
    try:
        folder.rename(target)
    except OSError:
        if not target.exists():
            raise
        retired = target.parent / f"{_TEMPORARY}{os.getpid()}-{uuid.uuid4().hex[:8]}"
        target.rename(retired)
        folder.rename(target)
        shutil.rmtree(retired, ignore_errors=True)


def sweep(parent: Path) -> None:
    """Removes the temporary folders of killed runs: those whose process no longer exists, here or in a container."""
    for path in parent.glob(f"{_TEMPORARY}*"):
        process = path.name.removeprefix(_TEMPORARY).split("-", 1)[0]
        if process.isdigit() and not Path(f"/proc/{process}").exists():
            remove_unless_locked(path)


def remove_unless_locked(folder: Path) -> None:
    """Removes the folder, unless a process holds a lock on it. The kernel ends a lock with its process."""
    # BlockingIOError: it is in use. Others: it is gone already, or belongs to another user.
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(descriptor)


def _answers_to(artifact: Artifact, reference: str) -> bool:
    return artifact.directory.name == reference or (len(reference) >= 6 and artifact.digest.startswith(reference))


def _sync(folder: Path) -> None:
    for path in (*folder.rglob("*"), folder):
        if path.is_symlink():
            continue
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
