"""Rows of a user's file by column: .txt, .jsonl, .tsv, .csv or .parquet, refused in words where it is none of them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from trimaran.core.errors import UnavailableError, UsageError, install_hint

# What people call the columns that we look for, in the order of preference.
TEXT = ("text", "sentence", "sentence1", "text1", "text_a", "premise", "context", "document", "passage", "content")
SECOND = ("pair", "text_pair", "sentence2", "text2", "text_b", "hypothesis", "question", "query")
LABEL = ("label", "score", "class", "similarity", "answer", "gold")
_KNOWN = {*TEXT, *SECOND, *LABEL}


@dataclass(frozen=True)
class Table:
    """`columns` are lower-case names; a file without a header has numbers for names."""

    path: Path
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def column(self, names: Sequence[str], *, what: str, place: int | None = None) -> list[str]:
        """The first of these columns that is there; in a file without a header the one at `place`."""
        column = next((name for name in names if name in self.columns), None)
        if column is None and place is not None and self.columns == tuple(map(str, range(len(self.columns)))):
            column = str(place) if place < len(self.columns) else None
        if column is None:
            raise UsageError(
                f"{self.path} has no column with the {what}: found {', '.join(self.columns) or 'none'}.",
                hint=f"Name it {names[0]!r} (or {', '.join(names[1:4])}) in the first line.",
            )
        index = self.columns.index(column)
        return [row[index] for row in self.rows]


def read_table(path: Path) -> Table:
    """By the file's ending; any other ending is read as text, one row a line."""
    return _READERS.get(path.suffix.lower(), _from_lines)(path)


def _decoded(path: Path) -> str:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise UsageError(f"The text file {path} cannot be read: {error.strerror}.") from error
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path} is not UTF-8 text (byte {error.start}).", hint="Give a text file with one text a line."
        ) from error
    if "\0" in text:
        raise UsageError(f"{path} is a binary file.", hint="Give a text file with one text a line.")
    return text


def _from_lines(path: Path) -> Table:
    return Table(path, ("text",), tuple((line.strip(),) for line in _decoded(path).splitlines() if line.strip()))


def _from_json_lines(path: Path) -> Table:
    records = []
    for number, line in enumerate(_decoded(path).splitlines(), start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError as error:
            raise UsageError(f"{path}, line {number} is not JSON: {error}.") from error
        record = {"text": value} if isinstance(value, str) else value
        if not isinstance(record, dict):
            raise UsageError(f"{path}, line {number} is {type(value).__name__}; an object or a string is wanted.")
        records.append({str(key).lower(): str(entry) for key, entry in record.items() if entry is not None})
    columns = tuple(dict.fromkeys(key for record in records for key in record))
    for number, record in enumerate(records, start=1):
        if missing := [name for name in columns if name not in record and name in _KNOWN]:
            raise UsageError(f"{path}, record {number} has no {missing[0]!r}, which others have.")
    return Table(path, columns, tuple(tuple(record.get(name, "") for name in columns) for record in records))


def _separated(delimiter: str) -> Callable[[Path], Table]:
    def read(path: Path) -> Table:
        text = io.StringIO(_decoded(path))
        # In .tsv a quotation mark is a letter like any other.
        plain = delimiter == "\t"
        lines = list(csv.reader(text, delimiter=delimiter, quoting=csv.QUOTE_NONE if plain else csv.QUOTE_MINIMAL))
        rows = [tuple(cell.strip() for cell in line) for line in lines if any(cell.strip() for cell in line)]
        if not rows:
            return Table(path, (), ())
        header = tuple(cell.lower() for cell in rows[0])
        if set(header) & _KNOWN:
            columns, rows = header, rows[1:]
        else:
            columns = tuple(map(str, range(len(rows[0]))))
        for number, row in enumerate(rows, start=1):
            if len(row) != len(columns):
                raise UsageError(
                    f"{path}, row {number} has {len(row)} columns, the first has {len(columns)}.",
                    hint="Columns are separated by a tab in .tsv and by a comma in .csv.",
                )
        return Table(path, columns, tuple(rows))

    return read


def _from_parquet(path: Path) -> Table:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise UnavailableError(
            f"{path} cannot be read: pyarrow is not installed.", hint=install_hint("scale")
        ) from error
    try:
        table = pyarrow.parquet.read_table(path)
    except (OSError, pyarrow.ArrowException) as error:
        raise UsageError(f"{path} is not a readable parquet file: {str(error).splitlines()[0]}") from error
    columns = tuple(str(name).lower() for name in table.column_names)
    values = [["" if value is None else str(value) for value in column.to_pylist()] for column in table.columns]
    return Table(path, columns, tuple(zip(*values, strict=True)))


_READERS: dict[str, Callable[[Path], Table]] = {
    ".jsonl": _from_json_lines,
    ".ndjson": _from_json_lines,
    ".tsv": _separated("\t"),
    ".csv": _separated(","),
    ".parquet": _from_parquet,
}
