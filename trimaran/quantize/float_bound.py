"""A lower bound on the time of any float candidate: an engine that did nothing but multiply.

If even that is slower than a candidate that is already proven, no float candidate needs to be made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from trimaran.core.artifact import load_artifact
from trimaran.core.backends import open_session
from trimaran.quantize.linear_layers import linear_layers
from trimaran.quantize.timing import least_times_s, one_row


def float_bound(parent: str, rival: str, sequences: Sequence[int], weight_levels: int) -> list[float]:
    """Return, for single rows of each length, the least time of the bare float32 products over the rival's.

    Each product takes the fastest library and runs on one thread. It finds its weights in the cache, where its last
    call left them; in a model it would not. So the bound favours float.
    """
    import onnx_ir as ir

    graph = load_artifact(Path(parent))
    layers = linear_layers(ir.load(graph.entry_path))
    sizes = Counter((layer.inputs, layer.outputs) for layer in layers for _ in layer.tensors)
    with open_session(load_artifact(Path(rival)), threads=1) as session:
        return [
            sum(count * bare_s(length, *size) for size, count in sizes.items())
            / least_times_s(partial(session.infer, one_row(graph, length)))[0]
            for length in sequences
        ]


def bare_s(rows: int, inputs: int, outputs: int) -> float:
    return min(least_times_s(product(rows, inputs, outputs))[0] for product in (_torch, _onnxruntime))


def _torch(rows: int, inputs: int, outputs: int) -> Callable[[], Any]:
    import torch

    torch.set_num_threads(1)
    left, right, out = torch.randn(rows, inputs), torch.randn(inputs, outputs), torch.empty(rows, outputs)
    return lambda: torch.mm(left, right, out=out)


def _onnxruntime(rows: int, inputs: int, outputs: int) -> Callable[[], Any]:
    """Its weights are constant, so that it may rearrange them beforehand, as engines do."""
    import onnx
    import onnxruntime

    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]>
    product (float[{rows}, {inputs}] left) => (float[{rows}, {outputs}] product) {{
        product = MatMul (left, right)
    }}""")
    weights = np.ones((inputs, outputs), np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "right"))
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    left = {"left": np.ones((rows, inputs), np.float32)}
    return lambda: session.run(None, left)
