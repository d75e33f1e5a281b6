from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.bulk.worlds import PART_ROWS, rejects, run, sentences, table, tiny, vectors, written
from tests.commands import COMMAND, environment
from tests.serving.worlds import by_hand
from tests.tiny import HIDDEN
from trimaran.bulk.part_files import RunShape
from trimaran.bulk.readers import InputColumns
from trimaran.bulk.run import WorkerOptions, settings_for
from trimaran.bulk.run_folder import read_manifest
from trimaran.bulk.vectors import VectorFolder
from trimaran.bulk.worker import EncodeOptions
from trimaran.core.artifact import Artifact, sha256_of
from trimaran.core.errors import UsageError, ValidationError


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return sentences(350)


@pytest.fixture(scope="module")
def encoded(artifact: Artifact, texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three and a half parts, with a bad row in the second."""
    folder = tmp_path_factory.mktemp("encoded")
    run(artifact, [written(folder / "in" / "a.txt", [*texts[:150], "", *texts[150:]])], folder / "out")
    return folder / "out"


def test_every_good_row_has_its_vector_in_order(encoded: Path, texts: list[str]) -> None:
    results = table(encoded)
    rows = [*range(150), *range(151, 351)]
    assert results.column("row").to_pylist() == rows
    assert results.column("id").to_pylist() == rows
    np.testing.assert_allclose(vectors(encoded), by_hand(texts), atol=1e-6)


def test_a_part_is_plain_parquet_that_names_its_artifact(encoded: Path, artifact: Artifact) -> None:
    results = pq.read_table(encoded / "parts" / "part-00000.parquet")
    assert results.schema.field("vector").type == pa.list_(pa.float32(), HIDDEN)
    assert set(results.column("artifact").to_pylist()) == {artifact.digest}
    assert results.schema.metadata[b"trimaran.artifact"].decode() == artifact.digest
    assert results.num_rows == PART_ROWS


def test_the_manifest_counts_and_names_what_is_there(encoded: Path, artifact: Artifact) -> None:
    manifest = read_manifest(encoded)
    assert (manifest.rows_read, manifest.rows_written, manifest.rows_rejected) == (351, 350, 1)
    assert manifest.rejected == {"empty": 1}
    assert manifest.artifact == artifact.digest
    assert [(part.first_row, part.rows) for part in manifest.parts] == [(0, 100), (100, 99), (200, 100), (300, 51)]
    for part in manifest.parts:
        for entry in part.files:
            assert sha256_of(encoded / "parts" / entry.name) == entry.sha256
    assert manifest.timing.rows == 351
    assert manifest.timing.rows_per_s > 0
    assert manifest.tokens > 350


def test_a_reject_has_file_line_and_reason(encoded: Path) -> None:
    (reject,) = rejects(encoded)
    assert reject.pop("file").endswith("in/a.txt")
    assert reject == {"row": 150, "line": 151, "reason": "empty"}


@pytest.mark.usefixtures("workers_here")
@pytest.mark.parametrize("format_", ["npy", "faiss", "jsonl"])
@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_other_formats_hold_the_same_vectors(
    artifact: Artifact, texts: list[str], tmp_path: Path, format_: str, dtype: str
) -> None:
    source = tmp_path / "a.jsonl"
    lines = [json.dumps({"text": text, "key": f"k{place}"}) for place, text in enumerate(texts)]
    source.write_text("\n".join(lines), encoding="utf-8")
    run(artifact, [source], tmp_path / "out", columns=InputColumns(id="key"), format_=format_, dtype=dtype)
    blocks = list(VectorFolder(tmp_path / "out").blocks(verify=True))
    assert [identity for block in blocks for identity in block.ids] == [f"k{place}" for place in range(350)]
    assert np.concatenate([block.rows for block in blocks]).tolist() == list(range(350))
    results = np.concatenate([block.vectors for block in blocks])
    np.testing.assert_allclose(results, by_hand(texts), atol=1e-6 if dtype == "fp32" else 2e-3)


@pytest.mark.usefixtures("workers_here")
def test_int8_keeps_a_scale_with_each_vector(artifact: Artifact, texts: list[str], tmp_path: Path) -> None:
    run(artifact, [written(tmp_path / "a.txt", texts)], tmp_path / "out", dtype="int8")
    results = table(tmp_path / "out")
    assert results.schema.field("vector").type == pa.list_(pa.int8(), HIDDEN)
    scales = np.asarray(results.column("scale").to_pylist())
    expected = by_hand(texts)
    np.testing.assert_allclose(scales, np.abs(expected).max(axis=1) / 127, rtol=1e-5)
    back = np.concatenate([block.vectors for block in VectorFolder(tmp_path / "out").blocks()])
    assert float(np.abs(back - expected).max()) <= float(scales.max()) / 2 + 1e-6


@pytest.mark.usefixtures("workers_here")
def test_classes_are_written_the_same_way(tmp_path: Path) -> None:
    classifier = tiny(tmp_path, task="text-classification")
    texts = sentences(120, seed=1)
    source = written(tmp_path / "a.txt", texts)
    run(classifier, [source], tmp_path / "out", how=EncodeOptions(rows="padded", ask={"top_k": 2}))
    results = table(tmp_path / "out")
    assert results.column("row").to_pylist() == list(range(120))
    answers = results.column("answer").to_pylist()
    assert {len(answer) for answer in answers} == {2}
    assert all(answer[0]["score"] >= answer[1]["score"] for answer in answers)
    run(classifier, [source], tmp_path / "lines", format_="jsonl", how=EncodeOptions(rows="alone", ask={"top_k": 2}))
    parts = sorted((tmp_path / "lines" / "parts").iterdir())
    lines = [json.loads(line) for part in parts for line in part.read_text().splitlines()]
    assert [line["answer"][0]["label"] for line in lines] == [answer[0]["label"] for answer in answers]


@pytest.mark.usefixtures("workers_here")
@pytest.mark.parametrize("task", ["embedding", "text-classification"])
def test_long_texts_are_cut_and_counted_or_rejected_when_asked(task: str, tmp_path: Path) -> None:
    artifact = tiny(tmp_path / "tiny", task=task)
    source = written(tmp_path / "a.txt", ["the cat", "dog " * 40, "sat"])
    cut = run(artifact, [source], tmp_path / "cut")
    assert (cut.rows_written, cut.rows_cut) == (3, 1)
    refused = run(artifact, [source], tmp_path / "refused", how=EncodeOptions(rows="padded", cut_long=False))
    assert (refused.rows_written, refused.rejected) == (2, {"too long for the model": 1})
    assert rejects(tmp_path / "refused")[0]["line"] == 2
    assert table(tmp_path / "refused").column("row").to_pylist() == [0, 2]


@pytest.mark.usefixtures("workers_here")
def test_long_texts_are_the_mean_over_pieces_when_asked(artifact: Artifact, tmp_path: Path) -> None:
    source = written(tmp_path / "a.txt", ["the cat", "cat " * 12 + "dog " * 12, "sat"])
    joined = run(artifact, [source], tmp_path / "joined", how=EncodeOptions(rows="padded", overflow="windows"))
    assert (joined.rows_written, joined.rows_cut) == (3, 0)
    halves = by_hand(["cat " * 12, " dog" * 12])
    wanted = [by_hand(["the cat"])[0], np.average(halves, axis=0, weights=[47, 49]), by_hand(["sat"])[0]]
    np.testing.assert_allclose(vectors(tmp_path / "joined"), wanted, atol=1e-6)


@pytest.mark.usefixtures("workers_here")
def test_a_part_of_nothing_but_bad_rows_has_no_file(artifact: Artifact, tmp_path: Path) -> None:
    source = written(tmp_path / "a.txt", [*[""] * PART_ROWS, "the cat"])
    manifest = run(artifact, [source], tmp_path / "out")
    assert [len(part.files) for part in manifest.parts] == [0, 1]
    assert table(tmp_path / "out").column("row").to_pylist() == [PART_ROWS]
    assert len(rejects(tmp_path / "out")) == PART_ROWS


@pytest.mark.usefixtures("workers_here")
def test_a_run_without_one_good_row_ends_with_a_sentence(artifact: Artifact, tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    source.write_text('{"title": "x"}\n')
    with pytest.raises(ValidationError, match="None of the 1 rows could be encoded: mostly no column 'text'"):
        run(artifact, [source], tmp_path / "out")
    assert len(rejects(tmp_path / "out")) == 1


@pytest.mark.usefixtures("workers_here")
def test_strict_stops_at_a_bad_row_and_resume_goes_on(artifact: Artifact, tmp_path: Path) -> None:
    source = written(tmp_path / "a.txt", ["the cat", "", "dog"])
    with pytest.raises(ValidationError, match=r"a\.txt, line 2: empty"):
        run(artifact, [source], tmp_path / "out", strict=True)
    written(source, ["the cat", "sat", "dog"])
    assert run(artifact, [source], tmp_path / "out", strict=True, resume=True).rows_written == 3


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format_": "faiss", "dtype": "int8"}, "does not keep our scale"),
        ({"columns": InputColumns(pair="b")}, "reads one text a row"),
    ],
)
def test_settings_that_cannot_be_are_refused(artifact: Artifact, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        settings_for(artifact, **{"columns": InputColumns(), "how": EncodeOptions(), **changes})


def test_answers_go_into_no_matrix(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="npy cannot hold them"):
        settings_for(
            tiny(tmp_path, task="text-classification"), columns=InputColumns(), how=EncodeOptions(), format_="npy"
        )


def test_a_folder_with_something_in_it_is_not_written_to(artifact: Artifact, tmp_path: Path) -> None:
    source = written(tmp_path / "a.txt", ["the cat"])
    written(tmp_path / "out" / "mine.txt", ["x"])
    with pytest.raises(UsageError, match="is not empty"):
        run(artifact, [source], tmp_path / "out")


def test_two_workers_write_what_one_writes(artifact: Artifact, texts: list[str], encoded: Path, tmp_path: Path) -> None:
    source = written(tmp_path / "a.txt", [*texts[:150], "", *texts[150:]])
    manifest = run(artifact, [source], tmp_path / "out", work=WorkerOptions(workers=2, threads=1))
    assert manifest.workers == 2
    for part in sorted((encoded / "parts").iterdir()):
        assert (tmp_path / "out" / "parts" / part.name).read_bytes() == part.read_bytes()


def test_a_shape_says_what_every_part_is(artifact: Artifact) -> None:
    shape = settings_for(artifact, columns=InputColumns(), how=EncodeOptions()).shape
    assert shape == RunShape(artifact=artifact.digest, task="embedding", format="parquet", dtype="fp32", width=HIDDEN)


@pytest.mark.slow
def test_ten_times_the_texts_take_the_same_memory(artifact: Artifact, home: Path, tmp_path: Path) -> None:
    texts = sentences(20_000, seed=8)

    def peak_kib(times: int) -> int:
        """Of the largest process of the run, the command or its worker."""
        source = written(tmp_path / f"{times}.txt", texts * times)
        arguments = [str(artifact.directory), "--input", str(source), "--output", str(tmp_path / f"out-{times}")]
        command = [*COMMAND, "encode", *arguments, "--rows", "padded", "--part-rows", "1000"]
        process = subprocess.Popen(command, env=environment(home), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        return usage.ru_maxrss

    few, many = peak_kib(1), peak_kib(10)
    assert many < 1.15 * few
