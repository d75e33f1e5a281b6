"""Finds the input files of a run, in reading order, and the format of each."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from trimaran.core.choices import InputKind
from trimaran.core.errors import UsageError
from trimaran.core.spec import Frozen

INPUT_KINDS: tuple[InputKind, ...] = get_args(InputKind)
STDIN = "-"
SUFFIXES: dict[str, InputKind] = {
    **{f".{kind}": kind for kind in INPUT_KINDS},
    ".text": "txt",
    ".ndjson": "jsonl",
    ".pq": "parquet",
}


class TextSource(Frozen):
    """One input file, or stdin."""

    path: str  # absolute, or `-` for stdin
    kind: InputKind
    size_bytes: int  # 0 for stdin, whose size is unknown


def sources_from(
    names: Sequence[str], *, kind: InputKind | None = None, outside: Path | None = None
) -> tuple[TextSource, ...]:
    """Expands files, globs, folders and `-`, each in sorted order.

    A file that is named twice is read once. Files beneath `outside`, the output folder, are left out.
    """
    sources: dict[str, TextSource] = {}
    for name in names:
        if name == STDIN:
            sources[STDIN] = _stdin(kind)
            continue
        for path in _paths_of(name, kind):
            if outside is None or not path.absolute().is_relative_to(outside.absolute()):
                sources.setdefault(str(path.absolute()), _source(path, kind))
    if not sources:
        raise UsageError(
            f"No input: {', '.join(names) or 'nothing was given'} names no file of texts.",
            hint=f"Give files, globs or folders of {', '.join(SUFFIXES)}, or `-` for stdin.",
        )
    return tuple(sources.values())


def _stdin(kind: InputKind | None) -> TextSource:
    if kind == "parquet":
        raise UsageError("Parquet has its index at the end and cannot be read from stdin.", hint="Give the file.")
    return TextSource(path=STDIN, kind=kind or "txt", size_bytes=0)


def _paths_of(name: str, kind: InputKind | None) -> list[Path]:
    path = Path(name).expanduser()
    if path.is_dir():
        inner = (file.relative_to(path) for file in sorted(path.rglob("*")) if file.is_file())
        shown = [file for file in inner if not any(part.startswith(".") for part in file.parts)]
        return [path / file for file in shown if kind or file.suffix.lower() in SUFFIXES]
    if path.exists():
        return [path]
    if glob.has_magic(name):
        matches = sorted(glob.glob(str(path), recursive=True))  # noqa: PTH207  (a pattern may be absolute)
        return [Path(match) for match in matches if Path(match).is_file()]
    raise UsageError(f"The input {name} does not exist.", hint="Give a file, a folder, a glob in quotes, or `-`.")


def _source(path: Path, kind: InputKind | None) -> TextSource:
    kind = kind or SUFFIXES.get(path.suffix.lower())
    if kind is None:
        raise UsageError(
            f"{path} is of no known kind: its name ends in {path.suffix or 'nothing'}.",
            hint=f"Name its format with --input-format {'|'.join(INPUT_KINDS)}.",
        )
    if not os.access(path, os.R_OK):
        raise UsageError(f"{path} cannot be read: permission denied.", hint="Change its permissions or leave it out.")
    return TextSource(path=str(path.absolute()), kind=kind, size_bytes=path.stat().st_size)
