from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.bulk.worlds import clustered, with_vectors
from trimaran.bulk import exports
from trimaran.bulk.exports import export
from trimaran.core.errors import UsageError
from trimaran.core.progress import SilentProgress

QUIET = SilentProgress()


def test_milvus_files_are_lists_of_numbers_under_a_schema(finished: Path, tmp_path: Path) -> None:
    vectors = clustered(300, 8)
    folder = with_vectors(finished, tmp_path / "run", vectors, per_part=70)
    done = export(folder, tmp_path / "milvus", target="milvus", name="titles", progress=QUIET)
    assert done.files == ("schema.json", "titles-00000.parquet")
    written = pq.read_table(tmp_path / "milvus" / "titles-00000.parquet")
    assert written.schema.field("id").type == pa.int64()
    assert written.schema.field("vector").type == pa.list_(pa.float32())
    assert written.column("id").to_pylist() == list(range(300))
    assert np.array_equal(np.asarray(written.column("vector").to_pylist(), np.float32), vectors)
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
