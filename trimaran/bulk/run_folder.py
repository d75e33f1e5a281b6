"""Writes and reads the folder of a run.

vectors/manifest.json            counts, artifact, inputs, parts with their digests, timing
vectors/rejects.jsonl            every row that was not encoded, with file, line and reason
vectors/settings.json            what the results depend on; --resume compares it
vectors/parts/part-00000.parquet the results of consecutive rows; the `row` column restores the order
vectors/receipts/part-00000.json describes one part; it is written last, so a part without one is not whole
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import ConfigDict, Field
from pydantic import ValidationError as SchemaError

from trimaran.bulk.chunks import Reject
from trimaran.bulk.part_files import RunShape, ids_in
from trimaran.bulk.readers import InputColumns
from trimaran.bulk.sources import TextSource
from trimaran.bulk.worker import EncodeOptions
from trimaran.core.artifact import FileEntry, sha256_of
from trimaran.core.environment import Environment
from trimaran.core.errors import IntegrityError, UsageError, first_line
from trimaran.core.spec import Frozen
from trimaran.core.store import locked, write_atomically

MANIFEST = "manifest.json"
SETTINGS = "settings.json"
REJECTS = "rejects.jsonl"
PARTS = "parts"
RECEIPTS = "receipts"
_TEMPORARY = ".making-"


class BulkSettings(Frozen):
    """What the results depend on. Runs with different settings never share a folder."""

    shape: RunShape
    columns: InputColumns
    how: EncodeOptions
    part_rows: int  # input rows of each part


class PartFacts(Frozen):
    """Which rows a part covers, and its files."""

    index: int
    first_row: int
    size: int  # input rows, good and bad
    rows: int  # rows with a result
    files: tuple[FileEntry, ...]


class PartReceipt(PartFacts):
    """One published part, as `receipts/` keeps it."""

    input_sha256: str  # `Chunk.digest` of the input it was made from
    tokens: int
    cut: int  # texts that were longer than the model reads
    rejected: dict[str, int] = {}  # rows by reason
    rejects: tuple[Reject, ...] = ()

    @property
    def slim(self) -> PartReceipt:
        """Without the single rejects, which stay on disk: memory must not grow with them."""
        return self.model_copy(update={"rejects": ()})


class PartEntry(PartFacts):
    """One part, as the manifest lists it."""

    rejected: int


class RunTiming(Frozen):
    """Rows and tokens of the last run only, without the parts that an earlier run had made."""

    begun: str
    seconds: float
    rows: int
    tokens: int
    rows_per_s: float
    tokens_per_s: float


class BulkManifest(Frozen):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    schema_version: Literal[1] = Field(default=1, alias="schema")
    trimaran: str  # version
    model: str
    artifact: str  # digest
    settings: BulkSettings
    inputs: tuple[TextSource, ...]
    engine: Literal["local", "ray"]
    workers: int
    lanes: int  # engines of each worker
    rows_read: int
    rows_written: int
    rows_rejected: int
    rejected: dict[str, int]  # rows by reason, the most frequent first
    rows_cut: int
    ids_repeated: int = 0  # rows whose id an earlier row has; 0 where rows are known by their number
    tokens: int
    parts: tuple[PartEntry, ...]
    parts_reused: int
    restarts: int  # workers that died and were replaced
    waits_for_disk: int
    timing: RunTiming
    environment: Environment


class RunFolder:
    """The output of one run. It is locked while it is open, so that two runs never write into it at once."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.parts = self.root / PARTS
        self._receipts = self.root / RECEIPTS

    @contextlib.contextmanager
    def opened(self, settings: BulkSettings, *, resume: bool) -> Iterator[RunFolder]:
        if self.root.exists() and not self.root.is_dir():
            raise UsageError(f"{self.root} is a file.", hint="Give a folder to --output.")
        if not resume and self.root.is_dir() and any(self.root.iterdir()):
            raise UsageError(
                f"{self.root} is not empty.", hint="Continue the run in it with --resume, or give another folder."
            )
        for folder in (self.parts, self._receipts):
            folder.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(locked(self.root, wait=False))
            except OSError as error:
                raise UsageError(f"Another run is writing to {self.root}.", hint="Wait for it to end.") from error
            self._require_same(settings)
            for path in self.parts.glob(f"{_TEMPORARY}*"):
                path.unlink()
            yield self

    def receipts(self) -> dict[int, PartReceipt]:
        """Receipts of whole parts, by index: every file is there and has the digest that the receipt names."""
        receipts: dict[int, PartReceipt] = {}
        for path in sorted(self._receipts.glob("part-*.json")):
            with contextlib.suppress(SchemaError):
                receipt = PartReceipt.model_validate_json(path.read_bytes())
                if all(self._is_whole(entry) for entry in receipt.files):
                    receipts[receipt.index] = receipt.slim
        return receipts

    def publish(self, receipt: PartReceipt) -> None:
        """Renames each file, then writes the receipt: only then does the part count."""
        for entry in receipt.files:
            temporary = self.parts / f"{_TEMPORARY}{entry.name}"
            # On a second try, after the disk was full between the renames and the receipt, the file has its name.
            if temporary.exists():
                temporary.replace(self.parts / entry.name)
        write_atomically(self._receipt_path(receipt.index), receipt.model_dump_json() + "\n")

    def remove_others(self, receipts: Mapping[int, PartReceipt]) -> None:
        """Removes parts that the input no longer has, and files that belong to no part."""
        names = {entry.name for receipt in receipts.values() for entry in receipt.files}
        paths = {self._receipt_path(index) for index in receipts} | {self.parts / name for name in names}
        for path in [*self.parts.iterdir(), *self._receipts.glob("part-*.json")]:
            if path not in paths:
                path.unlink()

    def repeated_ids(self, receipts: Mapping[int, PartReceipt]) -> int:
        """Rows whose id an earlier row has. Eight bytes of memory for each row."""
        parts = (ids_in(self.parts, [entry.name for entry in receipt.files]) for receipt in receipts.values())
        digests = np.fromiter((hash(repr(identity)) for ids in parts for identity in ids), np.int64)
        return digests.size - np.unique(digests).size

    def finish(self, manifest: BulkManifest, receipts: Mapping[int, PartReceipt]) -> None:
        """Writes the rejects of all parts, then the manifest."""
        temporary = self.root / f"{_TEMPORARY}{REJECTS}"
        with temporary.open("w", encoding="utf-8") as stream:
            for index in sorted(receipts):
                if receipts[index].rejected:
                    for reject in PartReceipt.model_validate_json(self._receipt_path(index).read_bytes()).rejects:
                        stream.write(json.dumps(reject.model_dump(), ensure_ascii=False) + "\n")
        temporary.replace(self.root / REJECTS)
        write_atomically(self.root / MANIFEST, manifest.model_dump_json(by_alias=True, indent=1) + "\n")

    def _require_same(self, settings: BulkSettings) -> None:
        """Writes the settings of a new run; raises UsageError if the run in this folder has others."""
        path = self.root / SETTINGS
        if not path.is_file():
            write_atomically(path, settings.model_dump_json(indent=1) + "\n")
            return
        before = _flat(json.loads(path.read_text(encoding="utf-8")))
        for key, value in _flat(settings.model_dump(mode="json")).items():
            if value != before.get(key):
                raise UsageError(
                    f"The run in {self.root} was begun with {key} {before.get(key)!r}, now it is {value!r}.",
                    hint="Give the same settings to --resume, or another --output.",
                )

    def _is_whole(self, entry: FileEntry) -> bool:
        path = self.parts / entry.name
        return path.is_file() and path.stat().st_size == entry.size_bytes and sha256_of(path) == entry.sha256

    def _receipt_path(self, index: int) -> Path:
        return self._receipts / f"{_part_name(index)}.json"


def write_temporary(parts: Path, index: int, files: Mapping[str, bytes]) -> list[FileEntry]:
    """Writes the files of a part under temporary names, as `publish` finds them. A full disk leaves none of them."""
    entries, written = [], []
    try:
        for suffix, data in files.items():
            name = f"{_part_name(index)}{suffix}"
            path = parts / f"{_TEMPORARY}{name}"
            written.append(path)
            with path.open("wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            entries.append(FileEntry(name=name, size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest()))
    except OSError:
        for path in written:
            path.unlink(missing_ok=True)
        raise
    return entries


def read_manifest(folder: Path) -> BulkManifest:
    """The manifest of a finished run."""
    path = folder / MANIFEST
    if not path.is_file():
        raise UsageError(
            f"{folder} holds no finished run: it has no {MANIFEST}.",
            hint="`trimaran encode` makes one; --resume finishes one that was begun.",
        )
    try:
        return BulkManifest.model_validate_json(path.read_bytes())
    except SchemaError as error:
        raise IntegrityError(f"{path} is not a readable manifest: {first_line(error)}", path=str(path)) from error


def _part_name(index: int) -> str:
    return f"part-{index:05}"


def _flat(data: Mapping[str, Any]) -> dict[str, Any]:
    """`{"shape": {"dtype": "fp32"}}` becomes `{"shape.dtype": "fp32"}`."""
    flat: dict[str, Any] = {}
    for key, value in data.items():
        inner = _flat(value) if isinstance(value, Mapping) else {}
        flat |= {f"{key}.{name}": item for name, item in inner.items()} if inner else {key: value}
    return flat
