from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.bulk.worlds import clustered, run, tiny, with_vectors, written
from trimaran.bulk.faiss_index import build
from trimaran.bulk.run_folder import read_manifest
from trimaran.bulk.search import SavedIndex
from trimaran.core.errors import IntegrityError, UsageError, ValidationError
from trimaran.core.progress import LineProgress, SilentProgress

GIB = 1 << 30
QUIET = SilentProgress()
pytestmark = pytest.mark.usefixtures("faiss_on_one_thread")


def test_a_flat_index_is_exact(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    facts = build(finished, tmp_path / "i.faiss", memory_bytes=GIB, progress=LineProgress())
    assert (facts.type, facts.count, facts.recall, facts.search) == ("flat", 150, 1.0, {})
    assert facts.metric == "cosine"
    assert facts.artifact == read_manifest(finished).artifact
    assert "flat: 150 vectors of 8 are few enough" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "knob"), [("ivf", "nprobe"), ("hnsw", "efSearch"), ("ivfpq", "nprobe"), ("binary", "k_factor_rf")]
)
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
