from __future__ import annotations

import onnx_ir as ir
import pytest

from tests.quantize.tensorrt.engines import TASKS, World
from trimaran.quantize.int8.integer_graph import name_nodes
from trimaran.quantize.linear_layers import attention_scores, linear_layers


@pytest.mark.parametrize("family", TASKS)
def test_every_linear_layer_of_an_encoder_is_found(world: World, family: str) -> None:
    """Two layers of query-key-value, attention's output, and both halves of the feed-forward; ALBERT has one twice."""
    model = name_nodes(ir.load(world.exported(family).entry_path))
    layers = linear_layers(model)
    narrowing = [layer for layer in layers if layer.hidden]
    attended = [layer for layer in layers if layer.values]
    passes = 2
    assert sum(len(layer.tensors) for layer in narrowing) == passes
    assert sum(len(layer.tensors) for layer in attended) == passes
    assert sum(len(layer.products) == 3 * len(layer.tensors) for layer in layers) == len(narrowing)
    assert len(attention_scores(model)) == passes
    assert len({layer.name for layer in layers}) == len(layers)
