from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np

from tests.quantize.tensorrt.engines import QUIET, World
from trimaran.core.onnx_write import write_model
from trimaran.quantize.int8.integer_bound import all_integer, onnxruntime_bound
from trimaran.quantize.optimize import optimize
from trimaran.runtime.onnxruntime_engine import Engine


def test_every_linear_layer_runs_on_whole_numbers_and_both_sides_are_timed(world: World, tmp_path: Path) -> None:
    fused = optimize(world.exported("bert"), store=world.store, progress=QUIET)
    graph = all_integer(fused, 127)
    kinds = Counter(node.op_type for node in graph.graph)
    assert not {"Attention", "MatMul", "Gemm"} & set(kinds), kinds
    write_model(graph, tmp_path / "model.onnx")
    engine = Engine(str(tmp_path / "model.onnx"), threads=1)
    inputs = {spec.name: np.ones((1, 8), np.int64) for spec in fused.signature.inputs}
    assert np.isfinite(engine.infer(inputs)["embedding"]).all()
    ratios = onnxruntime_bound(str(fused.directory), str(fused.directory), [4, 16], 127)
    assert len(ratios) == 2 and all(0 < ratio < 100 for ratio in ratios)
