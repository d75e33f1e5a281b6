"""Reads a file row by row, in order. A row that cannot be read comes with the reason."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from trimaran.bulk.sources import STDIN, TextSource
from trimaran.core.errors import first_line
from trimaran.core.spec import Frozen

NOT_UTF8 = "not UTF-8"
EMPTY = "empty"
TOO_LONG = "too long"
NOT_TEXT = "not text"
BAD_JSON = "not JSON"
BAD_CSV = "not CSV"
NO_ID = "no id"
UNREADABLE = "unreadable file"
_PARQUET_BATCH_ROWS = 1024
_SKIPPED_BYTES = 1 << 20


class InputColumns(Frozen):
    """Where a row's values are: keys, column names, or positions in .csv and .tsv files without a header."""

    text: str = "text"
    pair: str | None = None  # the second text, for tasks that read two
    id: str | None = None
    longest_bytes: int = 1 << 20  # longer lines and texts are rejected

    @property
    def by_position(self) -> bool:
        return self.text.isdecimal()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name in (self.text, self.pair, self.id) if name is not None)


class InputRow(NamedTuple):
    """One row of a file, good or bad."""

    line: int  # counts from 1; in Parquet, the row's number
    offset: int  # bytes of the file up to the row's end
    text: Any = None
    pair: Any = None
    id: Any = None
    reason: str = ""  # why the row cannot be read


def rows_of(source: TextSource, columns: InputColumns) -> Iterator[InputRow]:
    """Every row of a source, good or bad, with the values of its columns."""
    if source.kind == "parquet":
        yield from _parquet_rows(source, columns)
        return
    reader = _READERS[source.kind]
    if source.path == STDIN:
        yield from reader(sys.stdin.buffer, columns)
        return
    with Path(source.path).open("rb") as stream:
        yield from reader(stream, columns)


def _lines(stream: BinaryIO, longest: int) -> Iterator[tuple[int, int, bytes | None]]:
    """Number, end offset and bytes of each line. A line longer than `longest` is None and is never held whole."""
    number = offset = 0
    while raw := stream.readline(longest + 2):
        number += 1
        offset += len(raw)
        line = raw.rstrip(b"\r\n")
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        ended = raw.endswith(b"\n")
        while not ended and (rest := stream.readline(_SKIPPED_BYTES)):
            offset += len(rest)
            ended = rest.endswith(b"\n")
            line += rest[: longest + 1 - len(line)] if len(line) <= longest else b""
        yield number, offset, line if len(line) <= longest else None


def _text_rows(stream: BinaryIO, columns: InputColumns) -> Iterator[InputRow]:
    for number, offset, line in _lines(stream, columns.longest_bytes):
        yield InputRow(number, offset, reason=TOO_LONG) if line is None else InputRow(number, offset, text=line)


def _json_rows(stream: BinaryIO, columns: InputColumns) -> Iterator[InputRow]:
    for number, offset, line in _lines(stream, columns.longest_bytes):
        if line is None:
            yield InputRow(number, offset, reason=TOO_LONG)
            continue
        if not line.strip():
            yield InputRow(number, offset, reason=EMPTY)
            continue
        try:
            value = json.loads(line.decode("utf-8"))
        except UnicodeDecodeError:
            yield InputRow(number, offset, reason=NOT_UTF8)
        except (ValueError, RecursionError):
            yield InputRow(number, offset, reason=BAD_JSON)
        else:
            yield _from_fields(number, offset, {columns.text: value} if isinstance(value, str) else value, columns)


def _field_rows(stream: BinaryIO, columns: InputColumns, **dialect: Any) -> Iterator[InputRow]:
    """CSV by the standard library over bounded lines. A line that is too long rejects the record it is part of."""
    position = {"line": 0, "offset": 0}
    line_too_long = False

    def lines() -> Iterator[str]:
        nonlocal line_too_long
        for number, offset, line in _lines(stream, columns.longest_bytes):
            position.update(line=number, offset=offset)
            line_too_long |= line is None
            # Bytes that are not UTF-8 become lone surrogates, and the field that holds them is rejected later.
            yield (line or b"").decode("utf-8", "surrogateescape") + "\n"

    csv.field_size_limit(max(1, columns.longest_bytes))
    reader = csv.reader(lines(), **dialect)
    header: list[str] | None = None
    while True:
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield InputRow(**position, reason=TOO_LONG if "field limit" in str(error) else BAD_CSV)
            continue
        if line_too_long:
            line_too_long = False
            yield InputRow(**position, reason=TOO_LONG)
        elif header is None and not columns.by_position:
            header = fields
        elif not fields:
            yield InputRow(**position, reason=EMPTY)
        else:
            names = [str(index) for index in range(len(fields))] if header is None else header
            yield _from_fields(**position, fields=dict(zip(names, fields, strict=False)), columns=columns)


_READERS: dict[str, Callable[[BinaryIO, InputColumns], Iterator[InputRow]]] = {
    "txt": _text_rows,
    "jsonl": _json_rows,
    "csv": _field_rows,
    # Tab-separated values have no quotes: a text may begin with one.
    "tsv": partial(_field_rows, delimiter="\t", quoting=csv.QUOTE_NONE),
}


def _parquet_rows(source: TextSource, columns: InputColumns) -> Iterator[InputRow]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    row = 0
    try:
        with pq.ParquetFile(source.path) as file:
            total = max(1, file.metadata.num_rows)
            present = [name for name in dict.fromkeys(columns.names) if name in file.schema_arrow.names]
            for batch in file.iter_batches(batch_size=_PARQUET_BATCH_ROWS, columns=present):
                values = {name: _plain(batch.column(name), pa).to_pylist() for name in present}
                for index in range(batch.num_rows):
                    row += 1
                    fields = {name: column[index] for name, column in values.items()}
                    yield _from_fields(row, source.size_bytes * row // total, fields, columns)
    except (OSError, pa.ArrowException) as error:
        yield InputRow(row + 1, source.size_bytes, reason=f"{UNREADABLE}: {first_line(error)[:200]}")


def _plain(column: Any, pa: Any) -> Any:
    """Texts as bytes, so that a text that is not UTF-8 rejects its own row and not the whole batch."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_string(column.type) or pa.types.is_string_view(column.type):
        return column.cast(pa.binary())
    return column.cast(pa.large_binary()) if pa.types.is_large_string(column.type) else column


def _from_fields(line: int, offset: int, fields: Any, columns: InputColumns) -> InputRow:
    if not isinstance(fields, Mapping):
        return InputRow(line, offset, reason=NOT_TEXT)
    missing = [name for name in columns.names if name not in fields]
    if missing:
        return InputRow(line, offset, reason=f"no column {missing[0]!r}")
    pair = fields[columns.pair] if columns.pair is not None else None
    identity = fields[columns.id] if columns.id is not None else None
    return InputRow(line, offset, text=fields[columns.text], pair=pair, id=identity)
