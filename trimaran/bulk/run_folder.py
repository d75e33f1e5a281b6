"""What a run leaves on disk: whole parts, a receipt for each, the rejects, and a manifest when all is done.

vectors/manifest.json            counts, artifact, inputs, parts with their digests, timing
vectors/rejects.jsonl            every row that was not encoded, with file, line and reason
vectors/parts/part-00000.parquet rows by position; the `row` column gives the order back
vectors/receipts/part-00000.json what is known of one part; written after it, so a part without one is not whole
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, Field
from pydantic import ValidationError as SchemaError

from trimaran.bulk.chunks import Reject
from trimaran.bulk.part_files import RunShape
from trimaran.bulk.readers import InputColumns
from trimaran.bulk.sources import Source
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
    """What a result depends on. Runs that differ in it never share a folder."""

    shape: RunShape
    columns: InputColumns
    how: EncodeOptions
    part_rows: int


class PartReceipt(Frozen):
    """One published part: the input it was made from, its files, and the rows of its input that are not in it."""

    index: int
    first_row: int
    size: int
    rows: int
    input_sha256: str
    files: tuple[FileEntry, ...]
    tokens: int
    cut: int
    rejected: dict[str, int] = {}
    rejects: tuple[Reject, ...] = ()

    @property
    def slim(self) -> PartReceipt:
        """Without the single rejects, which stay on disk: memory must not grow with them."""
        return self.model_copy(update={"rejects": ()})


class PartEntry(Frozen):
    index: int
    first_row: int
    size: int
    rows: int
    rejected: int
    files: tuple[FileEntry, ...]


class RunTiming(Frozen):
    """Of the run that ended; parts that an earlier run had made are not in its rows."""

    begun: str
    seconds: float
    rows: int
    tokens: int
    rows_per_s: float
    tokens_per_s: float


class BulkManifest(Frozen):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    schema_version: Literal[1] = Field(default=1, alias="schema")
    trimaran: str
    model: str
    artifact: str
    settings: BulkSettings
    inputs: tuple[Source, ...]
    engine: Literal["local", "ray"]
    workers: int
    lanes: int
    rows_read: int
    rows_written: int
    rows_rejected: int
    rejected: dict[str, int]
    rows_cut: int
    tokens: int
    parts: tuple[PartEntry, ...]
    parts_reused: int
    # How often a worker had to be started anew, and how often the disk had to be waited for.
    restarts: int
    waits_for_disk: int
    timing: RunTiming
    environment: Environment


class RunFolder:
    """The output of one run; locked while it is open, so that two runs never write into it at once."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.parts = self.root / PARTS
        self._receipts = self.root / RECEIPTS

    @contextlib.contextmanager
    def opened(self, settings: BulkSettings, *, resume: bool) -> Iterator[RunFolder]:
        if self.root.exists() and not self.root.is_dir():
            raise UsageError(f"{self.root} is a file; --output wants a folder.")
        if not resume and self.root.is_dir() and any(self.root.iterdir()):
            raise UsageError(
                f"{self.root} is not empty.", hint="Continue the run in it with --resume, or give another folder."
            )
        for folder in (self.parts, self._receipts):
            folder.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(locked(self.root, wait=False))
            except OSError as error:
                raise UsageError(f"Another run is writing to {self.root}.", hint="Wait for it to end.") from error
            self._keep_to(settings)
            for path in self.parts.glob(f"{_TEMPORARY}*"):
                path.unlink()
            yield self

    def receipts(self) -> dict[int, PartReceipt]:
        """Of the parts that are whole: every file is there and is what its receipt says."""
        found: dict[int, PartReceipt] = {}
        for path in sorted(self._receipts.glob("part-*.json")):
            with contextlib.suppress(SchemaError):
                receipt = PartReceipt.model_validate_json(path.read_bytes())
                if all(self._whole(entry) for entry in receipt.files):
                    found[receipt.index] = receipt.slim
        return found

    def write_temporary(self, index: int, files: Mapping[str, bytes]) -> list[FileEntry]:
        """The files of a part under names that nobody reads; a full disk leaves none of them."""
        return write_temporary(self.parts, index, files)

    def publish(self, receipt: PartReceipt) -> None:
        """One rename a file, then the receipt: only with it does the part count."""
        for entry in receipt.files:
            temporary = self.parts / f"{_TEMPORARY}{entry.name}"
            # It is gone already when the disk was full between the renames and the receipt, and this is the second try.
            if temporary.exists():
                temporary.replace(self.parts / entry.name)
        write_atomically(self._receipt_path(receipt.index), receipt.model_dump_json() + "\n")

    def remove_beyond(self, receipts: Mapping[int, PartReceipt]) -> None:
        """Parts that the input no longer has, and files that belong to no part."""
        names = {entry.name for receipt in receipts.values() for entry in receipt.files}
        for path in self.parts.iterdir():
            if path.name not in names:
                path.unlink()
        for path in self._receipts.glob("part-*.json"):
            if path not in {self._receipt_path(index) for index in receipts}:
                path.unlink()

    def finish(self, manifest: BulkManifest, receipts: Mapping[int, PartReceipt]) -> None:
        temporary = self.root / f"{_TEMPORARY}{REJECTS}"
        with temporary.open("w", encoding="utf-8") as stream:
            for index in sorted(receipts):
                if receipts[index].rejected:
                    for reject in PartReceipt.model_validate_json(self._receipt_path(index).read_bytes()).rejects:
                        stream.write(json.dumps(reject.model_dump(), ensure_ascii=False) + "\n")
        temporary.replace(self.root / REJECTS)
        write_atomically(self.root / MANIFEST, manifest.model_dump_json(by_alias=True, indent=1) + "\n")

    def _keep_to(self, settings: BulkSettings) -> None:
        path = self.root / SETTINGS
        if not path.is_file():
            write_atomically(path, settings.model_dump_json(indent=1) + "\n")
            return
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        wanted = settings.model_dump(mode="json")
        differing = [key for key in _flat(wanted) if _flat(wanted)[key] != _flat(found).get(key)]
        if differing:
            key = differing[0]
            raise UsageError(
                f"The run in {self.root} was begun with {key} {_flat(found).get(key)!r}, now it is "
                f"{_flat(wanted)[key]!r}.",
                hint="Give the same settings to --resume, or another --output.",
            )

    def _whole(self, entry: FileEntry) -> bool:
        path = self.parts / entry.name
        return path.is_file() and path.stat().st_size == entry.size_bytes and sha256_of(path) == entry.sha256

    def _receipt_path(self, index: int) -> Path:
        return self._receipts / f"{part_name(index)}.json"


def part_name(index: int) -> str:
    return f"part-{index:05}"


def write_temporary(parts: Path, index: int, files: Mapping[str, bytes]) -> list[FileEntry]:
    entries, written = [], []
    try:
        for suffix, data in files.items():
            name = f"{part_name(index)}{suffix}"
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


def counted(receipts: Mapping[int, PartReceipt]) -> dict[str, int]:
    """How many rows were rejected for each reason."""
    total: Counter[str] = Counter()
    for receipt in receipts.values():
        total.update(receipt.rejected)
    return dict(total.most_common())


def _flat(data: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in data.items():
        inner = _flat(value, f"{key}.") if isinstance(value, Mapping) and value else {key: value}
        found.update({f"{before}{name}": item for name, item in inner.items()})
    return found
