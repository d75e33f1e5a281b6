"""Which files are to be read, in which order, and as what."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

from trimaran.core.errors import UsageError
from trimaran.core.spec import Frozen

InputKind = Literal["txt", "jsonl", "csv", "tsv", "parquet"]
INPUT_KINDS: tuple[InputKind, ...] = get_args(InputKind)
STDIN = "-"
SUFFIXES: dict[str, InputKind] = {
    ".txt": "txt",
    ".text": "txt",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
}


class Source(Frozen):
    """One input: a file, or `-` for stdin, whose size nobody knows."""

    path: str
    kind: InputKind
    size_bytes: int


def sources_from(
    given: Sequence[str], *, kind: InputKind | None = None, outside: Path | None = None
) -> tuple[Source, ...]:
    """Files, globs, folders and `-`, each expanded in sorted order; nothing beneath `outside`, nothing twice."""
    found: dict[str, Source] = {}
    for name in given:
        if name == STDIN:
            found[STDIN] = _stdin(kind)
            continue
        for path in _paths_of(name, kind):
            if outside is None or not path.absolute().is_relative_to(outside.absolute()):
                found.setdefault(str(path.absolute()), _source(path, kind))
    if not found:
        raise UsageError(
            f"No input: {', '.join(given) or 'nothing was given'} names no file of texts.",
            hint=f"Give files, globs or folders of {', '.join(SUFFIXES)}, or `-` for stdin.",
        )
    return tuple(found.values())


def _stdin(kind: InputKind | None) -> Source:
    if kind == "parquet":
        raise UsageError("Parquet has its index at the end and cannot be read from stdin.", hint="Give the file.")
    return Source(path=STDIN, kind=kind or "txt", size_bytes=0)


def _paths_of(name: str, kind: InputKind | None) -> list[Path]:
    path = Path(name).expanduser()
    if path.is_dir():
        inner = (found.relative_to(path) for found in sorted(path.rglob("*")) if found.is_file())
        shown = [found for found in inner if not any(part.startswith(".") for part in found.parts)]
        return [path / found for found in shown if kind or found.suffix.lower() in SUFFIXES]
    if path.exists():
        return [path]
    if glob.has_magic(name):
        found = sorted(glob.glob(str(path), recursive=True))  # noqa: PTH207  (a pattern may be absolute)
        return [Path(name) for name in found if Path(name).is_file()]
    raise UsageError(f"The input {name} does not exist.", hint="Give a file, a folder, a glob in quotes, or `-`.")


def _source(path: Path, kind: InputKind | None) -> Source:
    found = kind or SUFFIXES.get(path.suffix.lower())
    if found is None:
        raise UsageError(
            f"{path} is of no known kind: its name ends in {path.suffix or 'nothing'}.",
            hint=f"Say what it is with --input-format {'|'.join(INPUT_KINDS)}.",
        )
    if not os.access(path, os.R_OK):
        raise UsageError(f"{path} may not be read.", hint="Change its permissions or leave it out.")
    return Source(path=str(path.absolute()), kind=found, size_bytes=path.stat().st_size)
