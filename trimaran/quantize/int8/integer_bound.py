"""A lower bound on the time of searched INT8: every layer in INT8, whatever its answers.

If even that is slower than a candidate that is already proven, the search needs not be made.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trimaran.core.artifact import Artifact, load_artifact
from trimaran.core.backends import engine_class, open_session
from trimaran.core.onnx_graph import array_of
from trimaran.core.onnx_write import write_model
from trimaran.core.scratch import ScratchFolder
from trimaran.quantize.int8.encodings import Encoding
from trimaran.quantize.int8.integer_graph import integer_graph, name_nodes
from trimaran.quantize.linear_layers import linear_layers
from trimaran.quantize.timing import least_times_s, one_row
from trimaran.runtime.text import Array

if TYPE_CHECKING:
    import onnx_ir as ir


def onnxruntime_bound(parent: str, rival: str, sequences: Sequence[int], weight_levels: int) -> list[float]:
    """Return, for single rows of each length, the least time of ONNX Runtime with all layers in INT8 over the rival's.

    Both run on one thread of this process.
    """
    graph = load_artifact(Path(parent))
    with (
        ScratchFolder("bound") as folder,
        open_session(load_artifact(Path(rival)), threads=1) as session,
    ):
        path = Path(folder) / "model.onnx"
        write_model(all_integer(graph, weight_levels), path)
        engine: Any = engine_class("onnxruntime")(str(path), threads=1)
        try:
            ratios = []
            for inputs in (one_row(graph, length) for length in sequences):
                integer_s, rival_s = least_times_s(partial(engine.infer, inputs), partial(session.infer, inputs))
                ratios.append(integer_s / max(rival_s, 1e-9))
            return ratios
        finally:
            engine.close()


def all_integer(parent: Artifact, weight_levels: int) -> ir.Model:
    """Return the graph in ONNX Runtime's integer operators. Rough scales take the kernels as long as good ones."""
    import onnx_ir as ir

    model = name_nodes(ir.load(parent.entry_path))
    layers = linear_layers(model)
    encodings = {
        layer.name: _rough_encoding(
            np.concatenate([array_of(model.graph.initializers[name]) for name in layer.weights], axis=1), weight_levels
        )
        for layer in layers
    }
    return integer_graph(model, layers, encodings, kept=(), style="onnxruntime")


def _rough_encoding(matrix: Array, weight_levels: int) -> Encoding:
    """Scale weights by their largest, and activations from -8 to 8."""
    inputs, outputs = matrix.shape
    scales = (np.maximum(np.abs(matrix).max(axis=0), 1e-9) / weight_levels).astype(np.float32)
    return Encoding(
        channels=np.arange(inputs),
        factors=np.ones(inputs, np.float32),
        offsets=np.full(inputs, 8.0, np.float32),
        step=16.0 / 255,
        weights=np.rint(matrix / scales).astype(np.int8),
        scales=scales,
        correction=np.zeros(outputs, np.float32),
    )
