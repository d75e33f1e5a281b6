from __future__ import annotations

from pathlib import Path

from tests.bulk.worlds import chunks, texts_and_rejects, written


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
    cut = chunks(first, second, rows=2)
    assert [(chunk.index, chunk.first_row, chunk.size, chunk.rows, chunk.texts) for chunk in cut] == [
        (0, 0, 2, [0], ["a"]),
        (1, 2, 2, [2, 3], ["b", "c"]),
        (2, 4, 1, [4], ["d"]),
    ]
    assert cut[0].rejects[0].row == 1
    assert cut[-1].read_bytes == sum(path.stat().st_size for path in (first, second))


def test_the_digest_of_a_chunk_changes_with_its_input(tmp_path: Path) -> None:
    path = written(tmp_path / "a.txt", ["a", "b"])
    before = chunks(path)[0].digest
    assert chunks(path)[0].digest == before
    written(path, ["a", "B"])
    assert chunks(path)[0].digest != before


def test_pairs_want_both_texts(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "q", "context": "c"}\n{"text": "q", "context": ""}\n{"text": "q"}\n')
    texts, bad = texts_and_rejects(path, pair="context")
    assert texts == [("q", "c")]
    assert bad == [(2, "empty"), (3, "no column 'context'")]
