"""The stream of texts cut by position: the same input gives the same chunks, whoever works on them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from trimaran.bulk.readers import EMPTY, NO_ID, NOT_TEXT, NOT_UTF8, TOO_LONG, InputColumns, InputRow, rows_of
from trimaran.bulk.sources import Source
from trimaran.core.spec import Frozen
from trimaran.runtime.text import Text

Identity = int | str


class Reject(Frozen):
    """A row that was not encoded. `row` is its place in the whole stream, `line` its place in the file."""

    row: int
    file: str
    line: int
    reason: str


@dataclass
class Chunk:
    """The rows `first_row` to `first_row + size`, of which the bad ones are in `rejects`.

    `places` are the file and line of each good row; `read_bytes` is how much of the input was read up to here.
    """

    index: int
    first_row: int
    size: int = 0
    rows: list[int] = field(default_factory=list)
    ids: list[Identity] = field(default_factory=list)
    texts: list[Text] = field(default_factory=list)
    places: list[tuple[str, int]] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    read_bytes: int = 0

    @cached_property
    def digest(self) -> str:
        """Of all that the part made from it depends on, so that a changed input is noticed; asked of whole ones."""
        said = [self.first_row, self.size, self.rows, self.ids, self.texts]
        bad = [[reject.row, reject.reason] for reject in self.rejects]
        return hashlib.sha256(json.dumps([said, bad]).encode()).hexdigest()


def chunks_of(sources: Sequence[Source], columns: InputColumns, *, rows: int) -> Iterator[Chunk]:
    """Chunks of `rows` rows, bad ones included; the last may be shorter."""
    chunk = Chunk(0, 0)
    row = before_bytes = 0
    wanted_id: type | None = None
    for source in sources:
        for found in rows_of(source, columns):
            if chunk.size == rows:
                yield chunk
                chunk = Chunk(chunk.index + 1, row)
            text, reason = _text(found, columns)
            identity: Identity = row
            if not reason and columns.id is not None:
                identity, reason = _identity(found.id, wanted_id)
                wanted_id = wanted_id or (None if reason else type(identity))
            if reason:
                chunk.rejects.append(Reject(row=row, file=source.path, line=found.line, reason=reason))
            else:
                chunk.rows.append(row)
                chunk.ids.append(identity)
                chunk.texts.append(text)
                chunk.places.append((source.path, found.line))
            chunk.size += 1
            chunk.read_bytes = before_bytes + found.offset
            row += 1
        before_bytes += source.size_bytes
    if chunk.size:
        yield chunk


def _text(found: InputRow, columns: InputColumns) -> tuple[Text, str]:
    if found.reason:
        return "", found.reason
    text, reason = _decoded(found.text, columns.longest_bytes)
    if reason or columns.pair is None:
        return text, reason
    pair, reason = _decoded(found.pair, columns.longest_bytes)
    return (text, pair), reason


def _decoded(value: Any, longest: int) -> tuple[str, str]:
    """The text, and why it is none."""
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


def _identity(value: Any, wanted: type | None) -> tuple[Identity, str]:
    """Whole numbers stay numbers; all others are strings. The first id of a run decides for the rest."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if value is None or value == "":
        return "", NO_ID
    if isinstance(value, int) and not isinstance(value, bool) and wanted is not str:
        return value, "" if -(2**63) <= value < 2**63 else "id is beyond 64 bits"
    if wanted is int:
        return "", "id is no whole number, as the first one is"
    return str(value), ""
