"""Two rows of one id were encoded without a word, and a look-up by id found either."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trimaran.bulk.part_files import PartResults, RunShape, files_of
from trimaran.bulk.run_folder import PartReceipt, RunFolder, write_temporary
from trimaran.core.choices import PartFormat

PARTS: tuple[list[Any], ...] = (["a", "b", "a"], ["c"], ["b", "d", "1", "a"])


@pytest.mark.parametrize("kind", ["parquet", "npy", "jsonl"])
def test_rows_whose_id_an_earlier_row_has_are_counted_over_all_parts(tmp_path: Path, kind: PartFormat) -> None:
    shape = RunShape(artifact="x", task="embedding", format=kind, dtype="fp32", width=2)
    folder = RunFolder(tmp_path)
    folder.parts.mkdir()
    (tmp_path / "receipts").mkdir()
    receipts = {}
    for index, ids in enumerate(PARTS):
        part = PartResults(range(len(ids)), ids, np.ones((len(ids), 2), np.float32), ())
        files = tuple(write_temporary(folder.parts, index, files_of(part, shape)))
        receipts[index] = PartReceipt(
            index=index, first_row=0, size=len(ids), rows=len(ids), files=files, input_sha256="", tokens=0, cut=0
        )
        folder.publish(receipts[index])
    assert folder.repeated_ids(receipts) == 3
    assert folder.repeated_ids({1: receipts[1]}) == 0
