"""The digest list of a version in a model repository: every file that was published, compared before it is used.

The list finds damage: a flipped bit, a half-copied file, an edited stage. It does not stop somebody who may write to
the repository, because they can write the list too.
"""

from __future__ import annotations

import compileall
import contextlib
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

from trimaran.core.artifact import MANIFEST, FileEntry, sha256_of
from trimaran.core.config_pbtxt import CONFIG_FILE, read_config
from trimaran.core.errors import IntegrityError, RepositoryError
from trimaran.core.model_config import ModelConfig
from trimaran.core.persisted import Persisted
from trimaran.core.store import default_home, write_atomically

DIGESTS_FILE = "digests.json"
SIGNATURE_FILE = "digests.sig"
# The parameter of a model's configuration that says that its versions have a list.
LISTED = "digests"
_CACHE_FOLDER = "__pycache__"
_REMEMBERED = 4096
# What is remembered of a compiled file in the place of a digest.
_COMPILED_HERE = "compiled here"
log = logging.getLogger(__name__)
_HINT = "Lay the artifact out again, or copy the repository again from where it is sound."


class Digests(Persisted):
    what: ClassVar[str] = "digest list"
    remedy: ClassVar[str] = _HINT
    indent: ClassVar[int | None] = 2

    # The model and version that the files belong to: a signed version must not pass for another one.
    model: str
    version: int
    files: tuple[FileEntry, ...]


class Damage(NamedTuple):
    """A file of a version that is not as it was published."""

    kind: Literal["missing", "differs", "unlisted"]
    path: Path
    # Follows the path.
    sentence: str


def list_digests(folder: Path, *, model: str, version: int) -> None:
    """Writes the list of a version's folder, which may still have another name than it is published under."""
    files = tuple(
        FileEntry(name=name, size_bytes=path.stat().st_size, sha256=sha256_of(path))
        for name, path in _files_of(folder).items()
    )
    digests = Digests(model=model, version=version, files=files)
    write_atomically(folder / DIGESTS_FILE, digests.to_json())


def is_listed(folder: Path, config: ModelConfig | None) -> bool:
    """Whether the version has a list, or had one when it was published. `config` is what it is served by, if it is."""
    configs = [*([config] if config else []), *_own(folder)]
    return (folder / DIGESTS_FILE).exists() or any(LISTED in known.parameters for known in configs)


def damages_of(folder: Path, *, remembered: bool = True) -> Iterator[Damage]:
    """Each file that is missing, differs from the list or is not on it.

    A digest is remembered by inode, size and the times of the last change. Without `remembered`, every file is read.
    Raises IntegrityError when the list itself cannot be read.
    """
    digests = Digests.read(folder / DIGESTS_FILE)
    present = _files_of(folder)
    known = _Known() if remembered else None
    for entry in digests.files:
        path = present.pop(entry.name, None)
        if path is None:
            yield Damage("missing", folder / entry.name, f"is missing; {DIGESTS_FILE} lists it.")
        elif path.stat().st_size != entry.size_bytes:
            size = path.stat().st_size
            yield Damage("differs", path, f"has {size} bytes, {DIGESTS_FILE} says {entry.size_bytes}.")
        elif (known.sha256_of(path) if known else sha256_of(path)) != entry.sha256:
            yield Damage("differs", path, f"differs from {DIGESTS_FILE} (wanted sha256 {entry.sha256[:12]}…).")
    for path in present.values():
        yield Damage("unlisted", path, f"is not listed in {DIGESTS_FILE}.")
    if known:
        known.keep()


def require_undamaged(folder: Path, config: ModelConfig | None = None) -> None:
    """Raises IntegrityError with every damaged file of a version. One without a list is only warned about."""
    if not is_listed(folder, config):
        if (folder / MANIFEST).is_file():
            log.warning("%s has no digest list, so damage is not noticed. `trimaran repository seal` adds one.", folder)
        return
    damages = list(damages_of(folder))
    if damages:
        sentences = "; ".join(f"{damage.path} {damage.sentence}" for damage in damages)
        raise IntegrityError(f"Refused, damaged: {sentences}", hint=_HINT, path=str(damages[0].path))


def compile_code(folder: Path) -> None:
    """Compiles the code of a version before it is loaded, where its folder can be written to.

    Otherwise the stubs would do it. Triton replaces single stubs of a model only if its folder has not changed since.

    Compiled files that were not made here are made anew. No list has them, and Python runs one whose head fits the
    source, even if the rest of it is damaged.
    """
    known = _Known()
    for path in _compiled(folder):
        if not known.was_compiled(path):
            with contextlib.suppress(OSError):
                path.unlink()
    compileall.compile_dir(folder, quiet=2)
    for path in _compiled(folder):
        known.note_compiled(path)
    known.keep()


def _compiled(folder: Path) -> Iterator[Path]:
    return folder.rglob(f"{_CACHE_FOLDER}/*.pyc")


def _own(folder: Path) -> list[ModelConfig]:
    """The configuration that the version was published with, if it is there."""
    with contextlib.suppress(RepositoryError):
        return [read_config(folder / CONFIG_FILE)]
    return []


def _files_of(folder: Path) -> dict[str, Path]:
    """By their path in the folder. The list itself, its signature and what Python compiled are no part of it."""
    own = {DIGESTS_FILE, SIGNATURE_FILE}
    paths = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {
        name: path
        for name, path in paths.items()
        if name not in own and path.parent.name != _CACHE_FOLDER and not path.name.startswith(".")
    }


class _Known:
    """Digests that were computed before, in a file of the home. A file that was written since has another time.

    A copy may keep the time of its contents, such as that of `rsync --times`. Nobody can set the time of its inode.
    """

    def __init__(self) -> None:
        self._path = default_home() / "digests.json"
        self._sha256 = self._read()
        self._new: dict[str, str] = {}

    def sha256_of(self, path: Path) -> str:
        key = self._key(path)
        if key not in self._sha256:
            self._sha256[key] = self._new[key] = sha256_of(path)
        return self._sha256[key]

    def was_compiled(self, path: Path) -> bool:
        return self._sha256.get(self._key(path)) == _COMPILED_HERE

    def note_compiled(self, path: Path) -> None:
        if not self.was_compiled(path):
            key = self._key(path)
            self._sha256[key] = self._new[key] = _COMPILED_HERE

    def keep(self) -> None:
        if self._new:
            # Another process may have kept its own meanwhile.
            latest = dict([*(self._read() | self._new).items()][-_REMEMBERED:])
            with contextlib.suppress(OSError):
                write_atomically(self._path, json.dumps(latest))

    def _read(self) -> dict[str, str]:
        with contextlib.suppress(OSError, ValueError):
            return dict(json.loads(self._path.read_bytes()))
        return {}

    def _key(self, path: Path) -> str:
        facts = path.stat()
        return f"{facts.st_dev}:{facts.st_ino}:{facts.st_size}:{facts.st_mtime_ns}:{facts.st_ctime_ns}"
