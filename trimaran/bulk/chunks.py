"""Cuts the input into chunks by row number: the same input gives the same chunks, whichever worker reads them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from trimaran.bulk.readers import EMPTY, NO_ID, NOT_TEXT, NOT_UTF8, TOO_LONG, InputColumns, InputRow, rows_of
from trimaran.bulk.sources import TextSource
from trimaran.core.spec import Frozen
from trimaran.runtime.text import Text

Identity = int | str


class Reject(Frozen):
    """A row that was not encoded."""

    row: int  # its number in the whole input
    file: str
    line: int  # its number in the file
    reason: str


@dataclass
class Chunk:
    """Consecutive rows of the input, from which one part is made."""

    index: int
    first_row: int
    size: int = 0  # rows, good and bad
    # One entry for each good row.
    rows: list[int] = field(default_factory=list)
    ids: list[Identity] = field(default_factory=list)
    texts: list[Text] = field(default_factory=list)
    places: list[tuple[str, int]] = field(default_factory=list)  # file and line
    rejects: list[Reject] = field(default_factory=list)
    read_bytes: int = 0  # bytes of the whole input up to the last row

    @cached_property
    def digest(self) -> str:
        """SHA-256 of everything the part depends on, so that a changed input is noticed. Only for whole chunks."""
        good = [self.first_row, self.size, self.rows, self.ids, self.texts]
        bad = [[reject.row, reject.reason] for reject in self.rejects]
        return hashlib.sha256(json.dumps([good, bad]).encode()).hexdigest()

    def reject(self, index: int, reason: str) -> Reject:
        """The reject of the good row at `index`, for a row that fails later."""
        file, line = self.places[index]
        return Reject(row=self.rows[index], file=file, line=line, reason=reason)


def chunks_of(sources: Sequence[TextSource], columns: InputColumns, *, rows: int) -> Iterator[Chunk]:
    """Chunks of `rows` rows, bad rows included; the last may be shorter."""
    chunk = Chunk(0, 0)
    row = before_bytes = 0
    id_type: type | None = None
    for source in sources:
        for read in rows_of(source, columns):
            if chunk.size == rows:
                yield chunk
                chunk = Chunk(chunk.index + 1, row)
            text, reason = _text(read, columns)
            identity: Identity = row
            if not reason and columns.id is not None:
                identity, reason = _identity(read.id, id_type)
                id_type = id_type or (None if reason else type(identity))
            if reason:
                chunk.rejects.append(Reject(row=row, file=source.path, line=read.line, reason=reason))
            else:
                chunk.rows.append(row)
                chunk.ids.append(identity)
                chunk.texts.append(text)
                chunk.places.append((source.path, read.line))
            chunk.size += 1
            chunk.read_bytes = before_bytes + read.offset
            row += 1
        before_bytes += source.size_bytes
    if chunk.size:
        yield chunk


def _text(row: InputRow, columns: InputColumns) -> tuple[Text, str]:
    if row.reason:
        return "", row.reason
    text, reason = _decoded(row.text, columns.longest_bytes)
    if reason or columns.pair is None:
        return text, reason
    pair, reason = _decoded(row.pair, columns.longest_bytes)
    return (text, pair), reason


def _decoded(value: Any, longest: int) -> tuple[str, str]:
    """The text, and the reason if there is none."""
    if isinstance(value, str):
        try:
            value = value.encode("utf-8")
        except UnicodeEncodeError:
            return "", NOT_UTF8
    if value is None:
        return "", EMPTY
    if not isinstance(value, bytes):
        return "", NOT_TEXT
    if len(value) > longest:
        return "", TOO_LONG
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        return "", NOT_UTF8
    return (text, "") if text.strip() else ("", EMPTY)


def _identity(value: Any, id_type: type | None) -> tuple[Identity, str]:
    """Whole numbers stay numbers; all others become strings. The first id of a run decides the type of the rest."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if value is None or value == "":
        return "", NO_ID
    if isinstance(value, int) and not isinstance(value, bool) and id_type is not str:
        return value, "" if -(2**63) <= value < 2**63 else "id is beyond 64 bits"
    if id_type is int:
        return "", "id is no whole number, as the first one is"
    return str(value), ""
