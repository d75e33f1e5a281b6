"""How fast a model would be in float if an engine did nothing but multiply: what no float candidate can beat."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from trimaran.core.artifact import load_artifact
from trimaran.core.backends import open_session
from trimaran.quantize.int8.integer_bound import one_row
from trimaran.quantize.linear_layers import linear_layers

_LEAST_CALLS, _LEAST_S = 8, 0.3


def float_bound(parent: str, rival: str, sequences: Sequence[int], weight_levels: int) -> list[float]:
    """For single rows of each length: the processor time of the linear layers' bare products in float32, each by the
    fastest library, over that of the rival's whole graph. All on one thread; the least time of each counts.

    Each product finds its weights where its last call left them, which in a model it does not: the bound is on the side
    of float.
    """
    import onnx_ir as ir

    graph, beside = load_artifact(Path(parent)), load_artifact(Path(rival))
    layers = linear_layers(ir.load(graph.entry_path))
    sizes = Counter((layer.inputs, layer.outputs) for layer in layers for _ in layer.tensors)
    with open_session(beside, threads=1) as session:
        return [
            sum(count * bare_s(length, *size) for size, count in sizes.items())
            / least_s(partial(session.infer, one_row(graph, length)))
            for length in sequences
        ]


def bare_s(rows: int, inputs: int, outputs: int) -> float:
    return min(least_s(prepare(rows, inputs, outputs)) for prepare in (_torch, _onnxruntime))


def least_s(call: Callable[[], Any]) -> float:
    """Of some calls after the first, which makes ready."""
    call()
    found: list[float] = []
    end_s = time.process_time() + _LEAST_S
    while len(found) < _LEAST_CALLS or time.process_time() < end_s:
        begun_s = time.process_time()
        call()
        found.append(time.process_time() - begun_s)
    return min(found)


def _torch(rows: int, inputs: int, outputs: int) -> Callable[[], Any]:
    import torch

    torch.set_num_threads(1)
    left, right, out = torch.randn(rows, inputs), torch.randn(inputs, outputs), torch.empty(rows, outputs)
    return lambda: torch.mm(left, right, out=out)


def _onnxruntime(rows: int, inputs: int, outputs: int) -> Callable[[], Any]:
    """With weights that it may lay out beforehand, as engines do."""
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    weights = np.ones((inputs, outputs), np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["left", "right"], ["product"])],
        "product",
        [helper.make_tensor_value_info("left", TensorProto.FLOAT, [rows, inputs])],
        [helper.make_tensor_value_info("product", TensorProto.FLOAT, [rows, outputs])],
        [numpy_helper.from_array(weights, "right")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    left = {"left": np.ones((rows, inputs), np.float32)}
    return lambda: session.run(None, left)
