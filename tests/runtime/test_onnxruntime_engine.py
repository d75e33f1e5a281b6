"""What a long text took is given back after its call."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import psutil

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


def kept_bytes(path: str, given_back_from_pairs: int) -> int:
    """What an engine keeps of the memory of one long text. Run it in a process that did nothing else."""
    onnxruntime_engine._GIVEN_BACK_FROM_PAIRS = given_back_from_pairs
    engine = Engine(path, threads=1)
    engine.infer({"input_ids": np.ones((1, 8), np.int64)})
    before = psutil.Process().memory_info().rss
    engine.infer({"input_ids": np.ones((1, TOKENS), np.int64)})
    return int(psutil.Process().memory_info().rss - before)


def test_memory_of_a_long_text_is_given_back(tmp_path: Path) -> None:
    path = scores_of_all_pairs(tmp_path / "model.onnx")

    def in_a_new_process(given_back_from_pairs: int) -> int:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            return pool.submit(kept_bytes, path, given_back_from_pairs).result()

    assert in_a_new_process(onnxruntime_engine._GIVEN_BACK_FROM_PAIRS) < SCORES_BYTES / 2
    assert in_a_new_process(TOKENS**2 + 1) >= SCORES_BYTES, "without it the scores stay"
