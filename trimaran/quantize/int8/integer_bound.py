"""How fast a model would be with every layer in INT8, whatever its answers: what no search for a true one can beat."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trimaran.core.artifact import Artifact, load_artifact
from trimaran.core.backends import engine_class, open_session
from trimaran.core.onnx_graph import array_of
from trimaran.core.onnx_write import write_model
from trimaran.quantize.int8.encodings import Encoding
from trimaran.quantize.int8.integer_graph import integer_graph, name_nodes
from trimaran.quantize.linear_layers import linear_layers

Array = npt.NDArray[Any]
_WARM_UPS, _CALLS = 2, 20


def onnxruntime_bound(parent: str, rival: str, sequences: Sequence[int], weight_levels: int) -> list[float]:
    """For single rows of each length: the processor time of ONNX Runtime with all layers in INT8, over the rival's.

    Both run in turns on one thread of this process, and the least time of each counts, so that neither other
    processes nor the order can be seen in it.
    """
    graph, beside = load_artifact(Path(parent)), load_artifact(Path(rival))
    with tempfile.TemporaryDirectory(prefix="trimaran-") as folder, open_session(beside, threads=1) as session:
        path = Path(folder) / "model.onnx"
        write_model(all_integer(graph, weight_levels), path)
        engine: Any = engine_class("onnxruntime")(str(path), threads=1)
        try:
            return [_ratio(engine.infer, session.infer, one_row(graph, length)) for length in sequences]
        finally:
            engine.close()


def all_integer(parent: Artifact, weight_levels: int) -> Any:
    """The graph in ONNX Runtime's integer operators, whose kernels take as long for rough scales as for good ones."""
    import onnx_ir as ir

    model = name_nodes(ir.load(parent.entry_path))
    layers = linear_layers(model)
    encodings: dict[str, Encoding] = {}
    for layer in layers:
        matrix = np.concatenate([array_of(model.graph.initializers[name]) for name in layer.weights], axis=1)
        encodings[layer.name] = _rough(matrix, weight_levels)
    return integer_graph(model, layers, encodings, kept=(), style="onnxruntime")


def _rough(matrix: Array, weight_levels: int) -> Encoding:
    """Weights by their largest, activations from -8 to 8."""
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


def _ratio(mine: Callable[[Any], Any], other: Callable[[Any], Any], inputs: dict[str, Array]) -> float:
    least_s = [float("inf"), float("inf")]
    for done in range(_WARM_UPS + _CALLS):
        for place, infer in enumerate((mine, other)):
            begun_s = time.process_time()
            infer(inputs)
            if done >= _WARM_UPS:
                least_s[place] = min(least_s[place], time.process_time() - begun_s)
    return least_s[0] / max(least_s[1], 1e-9)


def one_row(artifact: Artifact, length: int) -> dict[str, Array]:
    """A row of one token over and over: nobody reads the answers."""
    fills = {"attention_mask": 1, "token_type_ids": 0}
    token = artifact.tokenizer.pad_id + 1
    return {
        spec.name: np.full((1, length), fills.get(spec.name, token), np.int64) for spec in artifact.signature.inputs
    }
