from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.bulk.worlds import texts_and_rejects
from trimaran.bulk.chunks import chunks_of
from trimaran.bulk.readers import InputColumns
from trimaran.bulk.sources import TextSource, sources_from


def test_lines_of_text_with_a_mark_and_carriage_returns(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeffeins\r\nzwei\n\n   \ndrei".encode() + b"\n\xff\xfe\n")
    assert texts_and_rejects(path) == (["eins", "zwei", "drei"], [(3, "empty"), (4, "empty"), (6, "not UTF-8")])


def test_a_line_without_end_is_never_held(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"short\n" + b"x" * 5_000_000 + b"\nexactly\nlast")
    assert texts_and_rejects(path, longest_bytes=7) == (["short", "exactly", "last"], [(2, "too long")])


def test_json_lines_of_objects_and_of_plain_strings(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(
        b'{"text": "one"}\n"two"\nnonsense\n{"title": "x"}\n{"text": 5}\n{"text": null}\n[1]\n'
        b'{"text": "\\ud800"}\n\xff\xfe\n\n' + b"[" * 100_000 + b"\n"
    )
    texts, bad = texts_and_rejects(path)
    assert texts == ["one", "two"]
    assert bad == [
        (3, "not JSON"),
        (4, "no column 'text'"),
        (5, "not text"),
        (6, "empty"),
        (7, "not text"),
        (8, "not UTF-8"),
        (9, "not UTF-8"),
        (10, "empty"),
        (11, "not JSON"),
    ]


def test_csv_with_quotes_newlines_and_bad_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b'id,text\n1,"two\nlines"\n2\n3,\xff\n4,"say ""hi"""\n\n5,' + b"y" * 200 + b"\n6,end\n")
    texts, bad = texts_and_rejects(path, longest_bytes=100)
    assert texts == ["two\nlines", 'say "hi"', "end"]
    assert bad == [(4, "no column 'text'"), (5, "not UTF-8"), (7, "empty"), (8, "too long")]


def test_tab_separated_texts_may_begin_with_a_quote_and_need_no_header(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text('"quoted\tSci\nplain\tWorld\n', encoding="utf-8")
    assert texts_and_rejects(path, text="0") == (['"quoted', "plain"], [])


def test_parquet_columns_of_every_text_type(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    broken = pa.StringArray.from_buffers(
        2, pa.py_buffer(b"\x00\x00\x00\x00\x02\x00\x00\x00\x04\x00\x00\x00"), pa.py_buffer(b"ok\xff\xfe")
    )
    pq.write_table(pa.table({"text": pa.concat_arrays([broken, pa.array(["", None, "last"])])}), path)
    assert texts_and_rejects(path) == (["ok", "last"], [(2, "not UTF-8"), (3, "empty"), (4, "empty")])
    pq.write_table(pa.table({"text": pa.array(["a", "b"]).dictionary_encode(), "n": [1, 2]}), path)
    assert texts_and_rejects(path)[0] == ["a", "b"]
    assert texts_and_rejects(path, text="n")[1] == [(1, "not text"), (2, "not text")]
    assert texts_and_rejects(path, text="title")[1] == [(1, "no column 'title'"), (2, "no column 'title'")]


def test_a_parquet_file_that_is_none_is_one_reject(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1 nonsense")
    ((line, reason),) = texts_and_rejects(path)[1]
    assert line == 1
    assert reason.startswith("unreadable file")


def test_stdin_is_read_as_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'{"text": "one"}\n{"text": "two"}\n')))
    (source,) = sources_from(["-"], kind="jsonl")
    assert source == TextSource(path="-", kind="jsonl", size_bytes=0)
    assert next(chunks_of([source], InputColumns(), rows=10)).texts == ["one", "two"]
