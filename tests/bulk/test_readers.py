from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.bulk.worlds import written
from trimaran.bulk.chunks import Chunk, chunks_of
from trimaran.bulk.readers import InputColumns
from trimaran.bulk.sources import Source, sources_from
from trimaran.core.errors import UsageError


def chunks(*paths: Path | str, rows: int = 1000, **columns: object) -> list[Chunk]:
    return list(chunks_of(sources_from([str(path) for path in paths]), InputColumns.model_validate(columns), rows=rows))


def told(path: Path, **columns: object) -> tuple[list[object], list[tuple[int, str]]]:
    """The texts, and line and reason of what is none."""
    (chunk,) = chunks(path, **columns)
    return list(chunk.texts), [(reject.line, reject.reason) for reject in chunk.rejects]


def test_lines_of_text_with_a_mark_and_carriage_returns(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeffeins\r\nzwei\n\n   \ndrei".encode() + b"\n\xff\xfe\n")
    assert told(path) == (["eins", "zwei", "drei"], [(3, "empty"), (4, "empty"), (6, "not UTF-8")])


def test_a_line_without_end_is_never_held(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"short\n" + b"x" * 5_000_000 + b"\nexactly\nlast")
    assert told(path, longest_bytes=7) == (["short", "exactly", "last"], [(2, "too long")])


def test_json_lines_of_objects_and_of_plain_strings(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(
        b'{"text": "one"}\n"two"\nnonsense\n{"title": "x"}\n{"text": 5}\n{"text": null}\n[1]\n'
        b'{"text": "\\ud800"}\n\xff\xfe\n\n' + b"[" * 100_000 + b"\n"
    )
    texts, bad = told(path)
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
    texts, bad = told(path, longest_bytes=100)
    assert texts == ["two\nlines", 'say "hi"', "end"]
    assert bad == [(4, "no column 'text'"), (5, "not UTF-8"), (7, "empty"), (8, "too long")]


def test_tab_separated_texts_may_begin_with_a_quote_and_need_no_header(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text('"quoted\tSci\nplain\tWorld\n', encoding="utf-8")
    assert told(path, text="0") == (['"quoted', "plain"], [])


def test_parquet_columns_of_every_text_type(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    broken = pa.StringArray.from_buffers(
        2, pa.py_buffer(b"\x00\x00\x00\x00\x02\x00\x00\x00\x04\x00\x00\x00"), pa.py_buffer(b"ok\xff\xfe")
    )
    pq.write_table(pa.table({"text": pa.concat_arrays([broken, pa.array(["", None, "last"])])}), path)
    assert told(path) == (["ok", "last"], [(2, "not UTF-8"), (3, "empty"), (4, "empty")])
    pq.write_table(pa.table({"text": pa.array(["a", "b"]).dictionary_encode(), "n": [1, 2]}), path)
    assert told(path)[0] == ["a", "b"]
    assert told(path, text="n")[1] == [(1, "not text"), (2, "not text")]
    assert told(path, text="title")[1] == [(1, "no column 'title'"), (2, "no column 'title'")]


def test_a_parquet_file_that_is_none_is_one_reject(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1 nonsense")
    ((line, reason),) = told(path)[1]
    assert line == 1
    assert reason.startswith("unreadable file")


def test_ids_keep_the_type_of_the_first_one(tmp_path: Path) -> None:
    numbers = tmp_path / "a.jsonl"
    numbers.write_text('{"text": "a", "id": 7}\n{"text": "b", "id": "x"}\n{"text": "c"}\n{"text": "d", "id": null}\n')
    (chunk,) = chunks(numbers, id="id")
    assert chunk.ids == [7]
    assert [reject.reason for reject in chunk.rejects] == [
        "id is no whole number, as the first one is",
        "no column 'id'",
        "no id",
    ]
    words = tmp_path / "b.jsonl"
    words.write_text('{"text": "a", "id": "x"}\n{"text": "b", "id": 7}\n')
    assert chunks(words, id="id")[0].ids == ["x", "7"]


def test_chunks_are_cut_by_position_over_all_files(tmp_path: Path) -> None:
    first, second = written(tmp_path / "a.txt", ["a", "", "b"]), written(tmp_path / "b.txt", ["c", "d"])
    found = chunks(first, second, rows=2)
    assert [(chunk.index, chunk.first_row, chunk.size, chunk.rows, chunk.texts) for chunk in found] == [
        (0, 0, 2, [0], ["a"]),
        (1, 2, 2, [2, 3], ["b", "c"]),
        (2, 4, 1, [4], ["d"]),
    ]
    assert found[0].rejects[0].row == 1
    assert found[-1].read_bytes == sum(path.stat().st_size for path in (first, second))


def test_the_digest_of_a_chunk_changes_with_its_input(tmp_path: Path) -> None:
    path = written(tmp_path / "a.txt", ["a", "b"])
    before = chunks(path)[0].digest
    assert chunks(path)[0].digest == before
    written(path, ["a", "B"])
    assert chunks(path)[0].digest != before


def test_pairs_want_both_texts(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "q", "context": "c"}\n{"text": "q", "context": ""}\n{"text": "q"}\n')
    texts, bad = told(path, pair="context")
    assert texts == [("q", "c")]
    assert bad == [(2, "empty"), (3, "no column 'context'")]


def test_folders_globs_and_files_are_expanded_in_order_and_once(tmp_path: Path) -> None:
    for name in ("b.txt", "a.csv", "deep/c.jsonl", ".hidden.txt", "notes.md"):
        written(tmp_path / name, ["x"])
    names = [Path(source.path).name for source in sources_from([str(tmp_path)])]
    assert names == ["a.csv", "b.txt", "c.jsonl"]
    again = sources_from([f"{tmp_path}/*.txt", str(tmp_path / "b.txt")])
    assert [source.kind for source in again] == ["txt"]
    assert not [s for s in sources_from([str(tmp_path)], outside=tmp_path / "deep") if "deep" in s.path]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["missing.txt"], "does not exist"),
        (["*.nothing"], "names no file"),
        (["notes.md"], "is of no known kind"),
    ],
)
def test_inputs_that_are_none_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "notes.md", ["x"])
    with pytest.raises(UsageError, match=words):
        sources_from(given)


def test_stdin_is_read_as_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'{"text": "one"}\n{"text": "two"}\n')))
    (source,) = sources_from(["-"], kind="jsonl")
    assert source == Source(path="-", kind="jsonl", size_bytes=0)
    assert next(chunks_of([source], InputColumns(), rows=10)).texts == ["one", "two"]


def test_parquet_cannot_come_from_stdin() -> None:
    with pytest.raises(UsageError, match="cannot be read from stdin"):
        sources_from(["-"], kind="parquet")
