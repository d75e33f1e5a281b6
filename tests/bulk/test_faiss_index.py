from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.bulk.worlds import run, sentences, tiny, written
from tests.tiny import HIDDEN
from trimaran.bulk import exports
from trimaran.bulk.exports import export
from trimaran.bulk.faiss_index import build, facts_path, ids_path
from trimaran.bulk.index_choice import choose_index, code_bytes, lists_for
from trimaran.bulk.part_files import PartResults, files_of
from trimaran.bulk.readers import InputColumns
from trimaran.bulk.run_folder import PartEntry, read_manifest, write_temporary
from trimaran.bulk.search import SavedIndex, vectors_by_artifact
from trimaran.bulk.worker import EncodeOptions
from trimaran.core.artifact import Artifact, FileEntry
from trimaran.core.errors import IntegrityError, UsageError, ValidationError
from trimaran.core.progress import LineProgress, SilentProgress

GIB = 1 << 30
QUIET = SilentProgress()
Vectors = npt.NDArray[np.float32]


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """Threads that wait for one another by spinning make small trainings slow on a busy machine."""
    import faiss

    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    yield
    faiss.omp_set_num_threads(before)


@pytest.fixture(scope="module")
def finished(artifact: Artifact, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of few rows, with words for ids."""
    folder = tmp_path_factory.mktemp("finished")
    lines = [json.dumps({"text": text, "id": f"t{i}"}) for i, text in enumerate(sentences(150, seed=2))]
    written(folder / "a.jsonl", lines)
    run(artifact, [folder / "a.jsonl"], folder / "out", columns=InputColumns(id="id"))
    return folder / "out"


def with_vectors(finished: Path, folder: Path, vectors: Vectors, *, per_part: int = 4000) -> Path:
    """A finished run whose vectors are these: as many and as wide as an index needs, without encoding a text."""
    manifest = read_manifest(finished)
    shape = manifest.settings.shape.model_copy(update={"width": vectors.shape[1]})
    (folder / "parts").mkdir(parents=True)
    parts = []
    for index, begin in enumerate(range(0, len(vectors), per_part)):
        block = vectors[begin : begin + per_part]
        rows = list(range(begin, begin + len(block)))
        files: list[FileEntry] = write_temporary(
            folder / "parts", index, files_of(PartResults(rows, rows, block, []), shape)
        )
        for entry in files:
            (folder / "parts" / f".making-{entry.name}").rename(folder / "parts" / entry.name)
        parts.append(
            PartEntry(index=index, first_row=begin, size=len(block), rows=len(block), rejected=0, files=tuple(files))
        )
    settings = manifest.settings.model_copy(update={"shape": shape})
    changed = manifest.model_copy(
        update={"settings": settings, "parts": tuple(parts), "rows_written": len(vectors), "rows_read": len(vectors)}
    )
    (folder / "manifest.json").write_text(changed.model_dump_json(by_alias=True), encoding="utf-8")
    return folder


def clustered(count: int, width: int) -> Vectors:
    """Unit vectors around a few centres, as texts of few topics have."""
    generator = np.random.default_rng(4)
    centres = generator.standard_normal((40, width))
    found = centres[generator.integers(40, size=count)] + 0.6 * generator.standard_normal((count, width))
    return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True), np.float32)


@pytest.mark.parametrize(
    ("count", "memory", "kind", "words"),
    [
        (10_000, 16 * GIB, "flat", "few enough"),
        (1_000_000, 16 * GIB, "hnsw", "their graph (1.7 GiB) fit into half of 16.0 GiB"),
        (5_000_000, 32 * GIB, "ivf", "fit whole"),
        (5_000_000, 8 * GIB, "ivfpq", "exceed half of 8.0 GiB, as codes they are"),
        (10_000, GIB // 100, "ivfpq", "exceed half"),
    ],
)
def test_the_type_follows_count_and_memory_and_says_why(count: int, memory: int, kind: str, words: str) -> None:
    choice = choose_index(count, 384, memory)
    assert choice.kind == kind
    assert words in choice.reason


def test_lists_have_enough_vectors_and_codes_divide_the_width() -> None:
    assert lists_for(30) == 1
    assert lists_for(1_000_000) == 4000
    assert all(count // lists_for(count) >= 39 for count in (100, 1000, 20_000))
    assert (code_bytes(384), code_bytes(100), code_bytes(7)) == (96, 25, 1)


def test_a_flat_index_is_exact(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    facts = build(finished, tmp_path / "i.faiss", memory_bytes=GIB, progress=LineProgress())
    assert (facts.type, facts.count, facts.recall, facts.search) == ("flat", 150, 1.0, {})
    assert facts.metric == "cosine"
    assert facts.artifact == read_manifest(finished).artifact
    assert "flat: 150 vectors of 8 are few enough" in capsys.readouterr().err


@pytest.mark.parametrize(("kind", "knob"), [("ivf", "nprobe"), ("hnsw", "efSearch"), ("ivfpq", "nprobe")])
def test_recall_is_measured_against_exact_search(finished: Path, tmp_path: Path, kind: str, knob: str) -> None:
    vectors = clustered(6000, 16)
    folder = with_vectors(finished, tmp_path / "run", vectors)
    facts = build(
        folder,
        tmp_path / "i.faiss",
        kind=kind,
        least_recall=0.9,
        memory_bytes=GIB,
        progress=QUIET,  # type: ignore[arg-type]
    )
    assert facts.metric == "inner-product"
    assert knob in facts.search
    own, queries = np.arange(0, 6000, 60), vectors[::60]
    similar = queries @ vectors.T
    similar[np.arange(100), own] = -np.inf
    exact = np.argsort(-similar, axis=1)[:, :10]
    got = [[hit.id for hit in hits] for hits in SavedIndex(tmp_path / "i.faiss").search(queries, 11)]
    recall = np.mean([len(set(a) & (set(b) - {o})) / 10 for a, b, o in zip(exact.tolist(), got, own, strict=True)])
    assert recall == pytest.approx(facts.recall, abs=0.08)
    assert facts.recall >= (0.9 if kind != "ivfpq" else 0.3)


def test_an_index_that_misses_too_much_is_not_chosen(finished: Path, tmp_path: Path) -> None:
    folder = with_vectors(finished, tmp_path / "run", clustered(1500, 16))
    with pytest.raises(ValidationError, match=r"finds 0\.\d+ of the true neighbours; 0\.999 were wanted"):
        build(folder, tmp_path / "i.faiss", least_recall=0.999, memory_bytes=50_000, progress=QUIET)
    assert not (tmp_path / "i.faiss").exists()


def test_search_finds_the_text_itself_by_its_id(artifact: Artifact, finished: Path, tmp_path: Path) -> None:
    build(finished, tmp_path / "i.faiss", memory_bytes=GIB, progress=QUIET)
    texts = sentences(150, seed=2)
    asked = vectors_by_artifact(artifact, EncodeOptions(rows="padded"), [texts[7], texts[140]])
    hits = SavedIndex(tmp_path / "i.faiss").search(asked, 3)
    assert [len(found) for found in hits] == [3, 3]
    for place, found in zip((7, 140), hits, strict=True):
        best = {hit.id for hit in found if hit.score > 1 - 1e-5}
        assert f"t{place}" in best


def test_a_model_of_another_width_cannot_search(finished: Path, tmp_path: Path) -> None:
    build(finished, tmp_path / "i.faiss", memory_bytes=GIB, progress=QUIET)
    with pytest.raises(UsageError, match=f"vectors of {HIDDEN} numbers, the model gives 3"):
        SavedIndex(tmp_path / "i.faiss").search(np.zeros((1, 3), np.float32), 1)


def test_an_index_whose_files_do_not_belong_together_is_refused(finished: Path, tmp_path: Path) -> None:
    path = tmp_path / "i.faiss"
    build(finished, path, memory_bytes=GIB, progress=QUIET)
    ids_path(path).write_text("1\n")
    with pytest.raises(IntegrityError, match="150 vectors and 1 ids"):
        SavedIndex(path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(IntegrityError, match="cannot be read as an index"):
        SavedIndex(path)
    facts_path(path).unlink()
    with pytest.raises(UsageError, match="is no index"):
        SavedIndex(path)


def test_a_damaged_part_is_noticed_before_it_is_indexed(finished: Path, tmp_path: Path) -> None:
    folder = with_vectors(finished, tmp_path / "run", clustered(100, 8))
    part = next((folder / "parts").iterdir())
    part.write_bytes(part.read_bytes() + b"x")
    with pytest.raises(IntegrityError, match="differs from the manifest"):
        build(folder, tmp_path / "i.faiss", memory_bytes=GIB, progress=QUIET)


def test_answers_and_unfinished_runs_have_no_index(tmp_path: Path) -> None:
    classifier = tiny(tmp_path, task="text-classification")
    run(classifier, [written(tmp_path / "a.txt", ["the cat"])], tmp_path / "out")
    with pytest.raises(UsageError, match="answers of text-classification, not vectors"):
        build(tmp_path / "out", tmp_path / "i.faiss", memory_bytes=GIB, progress=QUIET)
    (tmp_path / "out" / "manifest.json").unlink()
    with pytest.raises(UsageError, match="holds no finished run"):
        build(tmp_path / "out", tmp_path / "i.faiss", memory_bytes=GIB, progress=QUIET)


def test_milvus_files_are_lists_of_numbers_under_a_schema(finished: Path, tmp_path: Path) -> None:
    vectors = clustered(300, 8)
    folder = with_vectors(finished, tmp_path / "run", vectors, per_part=70)
    done = export(folder, tmp_path / "milvus", target="milvus", name="titles", progress=QUIET)
    assert done.files == ("schema.json", "titles-00000.parquet")
    found = pq.read_table(tmp_path / "milvus" / "titles-00000.parquet")
    assert found.schema.field("id").type == pa.int64()
    assert found.schema.field("vector").type == pa.list_(pa.float32())
    assert found.column("id").to_pylist() == list(range(300))
    assert np.array_equal(np.asarray(found.column("vector").to_pylist(), np.float32), vectors)
    schema = json.loads((tmp_path / "milvus" / "schema.json").read_text())
    assert [(field["name"], field["type"]) for field in schema["fields"]] == [
        ("id", "INT64"),
        ("vector", "FLOAT_VECTOR"),
    ]
    assert (schema["fields"][1]["dim"], schema["index"]["metric_type"]) == (8, "IP")


def test_milvus_takes_words_for_keys(finished: Path, tmp_path: Path) -> None:
    export(finished, tmp_path / "milvus", target="milvus", name="titles", progress=QUIET)
    schema = json.loads((tmp_path / "milvus" / "schema.json").read_text())
    assert schema["fields"][0] == {
        "name": "id",
        "type": "VARCHAR",
        "max_length": 512,
        "is_primary": True,
        "auto_id": False,
    }
    assert schema["index"]["metric_type"] == "COSINE"


def test_elasticsearch_files_are_bulk_requests(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exports, "REQUEST_BYTES", 20_000)
    vectors = clustered(300, 8)
    folder = with_vectors(finished, tmp_path / "run", vectors)
    done = export(folder, tmp_path / "es", target="elasticsearch", name="titles", progress=QUIET)
    files = [tmp_path / "es" / name for name in done.files if name.endswith(".ndjson")]
    assert len(files) > 1
    actions, documents = [], []
    for path in files:
        data = path.read_bytes()
        assert len(data) <= 20_000
        assert data.endswith(b"\n")
        lines = [json.loads(line) for line in data.decode().splitlines()]
        actions += lines[::2]
        documents += lines[1::2]
    assert actions == [{"index": {"_index": "titles", "_id": str(i)}} for i in range(300)]
    assert np.array_equal(np.asarray([line["vector"] for line in documents], np.float32), vectors)
    mapping = json.loads((tmp_path / "es" / "mapping.json").read_text())
    assert mapping["mappings"]["properties"]["vector"] == {
        "type": "dense_vector",
        "dims": 8,
        "index": True,
        "similarity": "dot_product",
    }


def test_names_that_elasticsearch_refuses_are_refused_here(finished: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot name an Elasticsearch index"):
        export(finished, tmp_path / "es", target="elasticsearch", name="Titles", progress=QUIET)
    assert not (tmp_path / "es").exists()
