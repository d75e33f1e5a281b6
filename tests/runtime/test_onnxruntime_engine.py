"""What a long text took is given back after its call."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import psutil
import pytest

from trimaran.runtime import onnxruntime_engine
from trimaran.runtime.onnxruntime_engine import Engine

TOKENS = 4096
SCORES_BYTES = TOKENS**2 * 4


def scores_of_all_pairs(path: Path) -> str:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
    scores (int64[rows, tokens] input_ids) => (float[rows] largest) {
        two = Constant<value_ints = [2]>()
        numbers = Cast<to = 1>(input_ids)
        left = Unsqueeze(numbers, two)
        one = Constant<value_ints = [1]>()
        right = Unsqueeze(numbers, one)
        scores = MatMul(left, right)
        weights = Softmax<axis = -1>(scores)
        largest = ReduceMax<axes = [1, 2], keepdims = 0>(weights)
    }""")
    onnx.save(model, path)
    return str(path)


def test_memory_of_a_long_text_is_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = scores_of_all_pairs(tmp_path / "model.onnx")
    inputs = {"input_ids": np.ones((1, TOKENS), np.int64)}

    def kept_bytes() -> int:
        engine = Engine(path, threads=1)
        engine.infer({"input_ids": np.ones((1, 8), np.int64)})
        before = psutil.Process().memory_info().rss
        engine.infer(inputs)
        kept = psutil.Process().memory_info().rss - before
        engine.close()
        return kept

    assert kept_bytes() < SCORES_BYTES / 2
    monkeypatch.setattr(onnxruntime_engine, "_GIVEN_BACK_FROM_PAIRS", TOKENS**2 + 1)
    assert kept_bytes() >= SCORES_BYTES, "without it the scores stay"
