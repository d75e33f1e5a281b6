"""A hybrid model's collection: one Parquet file with vectors, weights and token vectors, and an index of vectors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.bulk.worlds import run, written
from tests.export.exported import answering, exported_family
from trimaran.bulk.faiss_index import build
from trimaran.bulk.hybrid_search import WEIGHTS, rescored
from trimaran.bulk.search import SavedIndex, encoded_by_artifact
from trimaran.bulk.worker import EncodeOptions
from trimaran.core.artifact import Artifact
from trimaran.core.errors import UsageError
from trimaran.core.progress import SilentProgress
from trimaran.core.tasks import TASKS

TEXTS = ["the cat sat on the mat", "who ran", "a house by the sea 🍕"]


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return exported_family(tmp_path_factory.mktemp("hybrid"), "bert", "hybrid-embedding")


@pytest.mark.slow
def test_one_parquet_holds_all_three_and_its_vectors_are_indexed(artifact: Artifact, tmp_path: Path) -> None:
    source = written(tmp_path / "a.txt", TEXTS)
    run(artifact, [source], tmp_path / "table")
    run(artifact, [source], tmp_path / "lines", format_="jsonl", how=_asking("dense", "sparse"))
    table = pq.read_table(tmp_path / "table" / "parts")
    lines = (tmp_path / "lines" / "parts" / "part-00000.jsonl").read_text(encoding="utf-8").splitlines()
    wanted = TASKS[artifact.task].served.answer(answering(artifact), TEXTS)
    np.testing.assert_allclose(table.column("vector").to_pylist(), [row["dense"] for row in wanted], atol=1e-5)
    for index, answer in enumerate(wanted):
        tokens = [entry["token"] for entry in answer["sparse"]]
        assert [entry["token"] for entry in table.column("sparse")[index].as_py()] == tokens
        assert [entry["token"] for entry in json.loads(lines[index])["sparse"]] == tokens
        colbert = table.column("colbert")[index].as_py()
        assert colbert["tokens"] == answer["colbert"]["tokens"]
        np.testing.assert_allclose(colbert["token_embeddings"], answer["colbert"]["token_embeddings"], atol=1e-5)
        assert "colbert" not in json.loads(lines[index])
    build(tmp_path / "table", tmp_path / "index", kind="flat", memory_bytes=1 << 30, progress=SilentProgress())
    asked = encoded_by_artifact(artifact, EncodeOptions(rows="padded"), TEXTS, hybrid=True)
    hits = SavedIndex(tmp_path / "index").search(asked.vectors, 3)
    assert [row[0].id for row in hits] == [0, 1, 2]
    for number, row in enumerate(rescored(tmp_path / "table", asked.answers, hits)):
        for hit in row:
            assert hit.score == pytest.approx(_by_hand(wanted[number], wanted[int(hit.id)]), abs=1e-4)
        assert [hit.score for hit in row] == sorted((hit.score for hit in row), reverse=True)
    with pytest.raises(UsageError, match="does not hold token weights and token vectors"):
        rescored(tmp_path / "lines", asked.answers, hits)


def _by_hand(query: dict[str, Any], text: dict[str, Any]) -> float:
    """The score of a text as FlagEmbedding's compute_score adds it up."""
    weights = {entry["token"]: entry["weight"] for entry in text["sparse"]}
    sparse = sum(entry["weight"] * weights.get(entry["token"], 0) for entry in query["sparse"])
    products = query["colbert"]["token_embeddings"] @ text["colbert"]["token_embeddings"].T
    return float(np.dot(list(WEIGHTS.values()), [query["dense"] @ text["dense"], sparse, products.max(1).mean()]))


def test_formats_and_options_that_do_not_fit_are_refused(artifact: Artifact, tmp_path: Path) -> None:
    source = written(tmp_path / "a.txt", TEXTS)
    with pytest.raises(UsageError, match="npy holds vectors, and hybrid-embedding gives more"):
        run(artifact, [source], tmp_path / "out", format_="npy")
    with pytest.raises(UsageError, match="dense is missing among the outputs"):
        run(artifact, [source], tmp_path / "out", how=_asking("sparse"))
    with pytest.raises(UsageError, match="found splade"):
        run(artifact, [source], tmp_path / "out", how=_asking("splade"))
    with pytest.raises(UsageError, match="--overflow windows joins vectors"):
        run(artifact, [source], tmp_path / "out", how=EncodeOptions(rows="padded", overflow="windows"))


def _asking(*outputs: str) -> EncodeOptions:
    return EncodeOptions(rows="padded", ask={"outputs": list(outputs)})
