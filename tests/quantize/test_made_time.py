"""A candidate that is made is timed beside a proven one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.export.exported import exported_family
from trimaran.quantize import made_time as module
from trimaran.quantize.made_time import made_time


def test_both_graphs_answer_rows_of_each_length_and_the_ratio_is_the_candidates_over_the_rivals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, rival = (
        exported_family(tmp_path / str(layers), "bert", "embedding", num_hidden_layers=layers) for layers in (1, 2)
    )
    answers: list[Any] = []

    def timed(*calls: Callable[[], Any]) -> list[float]:
        answers.append([call()["embedding"] for call in calls])
        return [3.0, 2.0]

    monkeypatch.setattr(module, "least_times_s", timed)
    assert made_time(str(made.directory), str(rival.directory), [4, 9], 127) == [1.5, 1.5]
    assert [[array.shape for array in pair] for pair in answers] == [[(1, 32), (1, 32)]] * 2
    assert not np.array_equal(*answers[0]), "they are different models"
