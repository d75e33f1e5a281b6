from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.bulk.worlds import sentences
from tests.tiny import HIDDEN
from trimaran.bulk.faiss_index import build, facts_path, ids_path
from trimaran.bulk.search import SavedIndex, encoded_by_artifact
from trimaran.bulk.worker import EncodeOptions
from trimaran.core.artifact import Artifact
from trimaran.core.errors import IntegrityError, UsageError
from trimaran.core.progress import SilentProgress

GIB = 1 << 30
QUIET = SilentProgress()
pytestmark = pytest.mark.usefixtures("faiss_on_one_thread")


def test_search_finds_the_text_itself_by_its_id(artifact: Artifact, finished: Path, tmp_path: Path) -> None:
    build(finished, tmp_path / "i.faiss", memory_bytes=GIB, progress=QUIET)
    texts = sentences(150, seed=2)
    queries = encoded_by_artifact(artifact, EncodeOptions(rows="padded"), [texts[7], texts[140]]).vectors
    hits = SavedIndex(tmp_path / "i.faiss").search(queries, 3)
    assert [len(nearest) for nearest in hits] == [3, 3]
    for position, nearest in zip((7, 140), hits, strict=True):
        best = {hit.id for hit in nearest if hit.score > 1 - 1e-5}
        assert f"t{position}" in best


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
