"""Adds pooling to an ONNX graph that ends in token vectors, as sentence-transformers' ONNX backend writes it."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from trimaran.core.spec import ModelRef
from trimaran.export.quiet import quiet

if TYPE_CHECKING:
    import onnx_ir as ir

_PREFIX = "pooling/"
# torch's exporter writes these; other graphs are pooled in the nearest.
_OLDEST, _NEWEST = 14, 20


def append_pooling(model: ir.Model, ref: ModelRef, states: ir.Value) -> None:
    """Makes `sentence_embedding` of the token vectors `states` the only output of the model.

    The pooling, Dense layers and unit length are those of the trained model, traced by torch.
    """
    import onnx_ir as ir

    graph = model.graph
    pooling = _traced(ref, min(_NEWEST, max(_OLDEST, graph.opset_imports.get("", _OLDEST)))).graph
    mask = next(value for value in graph.inputs if value.name == "attention_mask")
    for own, replacement in zip(pooling.inputs, (states, mask), strict=True):
        ir.convenience.replace_all_uses_with(own, replacement)
    (vectors,) = pooling.outputs
    for value in list(pooling.initializers.values()):
        del pooling.initializers[value.name]
        value.name = f"{_PREFIX}{value.name}"
        graph.register_initializer(value)
    nodes = list(pooling)
    pooling.outputs.clear()
    pooling.remove(nodes)
    for node in nodes:
        node.name = f"{_PREFIX}{node.name}"
        for value in node.outputs:
            value.name = f"{_PREFIX}{value.name}"
    graph.extend(nodes)
    vectors.name = "sentence_embedding"
    graph.outputs[:] = [vectors]


def _traced(ref: ModelRef, opset: int) -> ir.Model:
    import onnx
    import onnx_ir as ir
    import torch

    from trimaran.export.pooling import Pooled

    stream = io.BytesIO()
    arguments = (torch.rand(2, 8, ref.hidden), torch.ones(2, 8, dtype=torch.int64))
    with quiet(), torch.inference_mode():
        torch.onnx.export(
            Pooled(ref).eval(),
            arguments,
            stream,
            dynamo=False,
            opset_version=opset,
            input_names=["states", "mask"],
            output_names=["vectors"],
            dynamic_axes={
                "states": {0: "batch", 1: "sequence"},
                "mask": {0: "batch", 1: "sequence"},
                "vectors": {0: "batch"},
            },
        )
    return ir.from_proto(onnx.load_from_string(stream.getvalue()))
