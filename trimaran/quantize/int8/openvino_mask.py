"""Shortens an encoder's attention mask in an OpenVINO graph to one row for each text.

transformers builds the mask by positions, for models that look ahead and for those that do not. This takes some 35
small nodes, which OpenVINO prepares anew for every shape, and gives a square of numbers for each text. An encoder looks
at every token that is not padding, so all rows of the square are equal. Example, a text of 2 tokens and 1 padding:

    [[0, 0, -inf],
     [0, 0, -inf],   becomes   [[0, 0, -inf]]
     [0, 0, -inf]]
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from trimaran.runtime.text import Array

MASK = "attention_mask"
ATTENTION = "ScaledDotProductAttention"
_MASK_INPUT = 3
# Texts and tokens of the masks on which both forms are compared.
_TRIED_SHAPES = ((1, 5), (2, 8), (3, 17))


def shorten_mask(model: Any) -> bool:
    """Make the mask from `attention_mask` alone, [texts, 1, 1, tokens], if this gives the same mask to the last bit.

    Both are compared on masks of several shapes. If they differ, the graph stays as it is, and False is returned.
    """
    import openvino.opset13 as ops

    attentions = [node for node in model.get_ops() if node.get_type_name() == ATTENTION]
    masked = [node for node in attentions if node.get_input_size() > _MASK_INPUT]
    masks = {source_of(node, _MASK_INPUT).get_friendly_name() for node in masked}
    inputs = [node for node in model.get_parameters() if node.get_friendly_name() == MASK]
    if len(masks) != 1 or not inputs:
        return False
    hidden = _hiding_value(model, masks.pop())
    if hidden is None:
        return False
    shown = ops.not_equal(inputs[0], ops.constant(0, dtype=inputs[0].get_element_type()))
    row = ops.select(shown, ops.constant(np.float32(0)), ops.constant(hidden))
    short = ops.unsqueeze(row, ops.constant(np.array([1, 2], np.int64)))
    for node in attentions:
        node.input(_MASK_INPUT).replace_source_output(short.output(0))
    model.validate_nodes_and_infer_types()
    return True


def source_of(node: Any, index: int) -> Any:
    """Return the node that makes this input."""
    return node.input(index).get_source_output().get_node()


def sources_of(node: Any) -> list[Any]:
    return [source_of(node, index) for index in range(node.get_input_size())]


def _hiding_value(model: Any, name: str) -> np.float32 | None:
    """Return what the mask of that name adds to hidden tokens, or None if it does more than hide them."""
    import openvino as ov

    copy = model.clone()
    mask = next(node for node in copy.get_ops() if node.get_friendly_name() == name)
    if mask.get_output_element_type(0) != ov.Type.f32 or not _depends_on_mask_alone(mask):
        return None
    inputs = [node for node in _ancestors(mask) if node.get_type_name() == "Parameter"]
    request = ov.Core().compile_model(ov.Model([mask.output(0)], inputs), "CPU").create_infer_request()
    generator = np.random.default_rng(0)
    values: set[np.float32] = set()
    for rows, tokens in _TRIED_SHAPES:
        shown = generator.integers(2, size=(rows, tokens))
        # Every text shows a token, as real ones do, and hides one, so that the hiding value is seen.
        shown[:, 0], shown[:, -1] = 1, 0
        feed = {node.get_friendly_name(): _filled(node, rows, tokens, shown) for node in inputs}
        made = next(iter(request.infer(feed).values()))
        short = np.where(shown[:, None, None, :] != 0, np.float32(0), made.min())
        if made.ndim != short.ndim or not np.array_equal(made, np.broadcast_to(short, made.shape)):
            return None
        values.add(np.float32(made.min()))
    return values.pop() if len(values) == 1 else None


def _depends_on_mask_alone(mask: Any) -> bool:
    """Whether the values of `attention_mask` alone make the mask.

    Tensors of which only the shape is read are replaced by inputs, so that no layer has to run for their shape.
    """
    import openvino as ov
    import openvino.opset13 as ops

    for node in [node for node in _ancestors(mask) if node.get_type_name() == "ShapeOf"]:
        source = source_of(node, 0)
        if source.get_type_name() == "Parameter" or _inputs_read(source) <= {MASK}:
            continue
        shape = source.get_output_partial_shape(node.input(0).get_source_output().get_index())
        if shape.rank.is_dynamic or len(shape) < 2 or not (shape[0].is_dynamic and shape[1].is_dynamic):
            return False
        node.input(0).replace_source_output(ops.parameter(shape, ov.Type.f32).output(0))
    return _inputs_read(mask) == {MASK}


def _inputs_read(node: Any) -> set[str]:
    """Return the graph's inputs whose values, not only shapes, the node is computed from."""
    parameters = [ancestor for ancestor in _ancestors(node, by_value=True) if ancestor.get_type_name() == "Parameter"]
    return {parameter.get_friendly_name() for parameter in parameters}


def _filled(node: Any, rows: int, tokens: int, shown: Array) -> Array:
    dtype = node.get_element_type().to_dtype()
    if node.get_friendly_name() == MASK:
        return shown.astype(dtype)
    fixed = [size.get_length() for size in list(node.get_partial_shape())[2:]]
    return np.zeros((rows, tokens, *fixed), dtype)


def _ancestors(node: Any, *, by_value: bool = False) -> Iterator[Any]:
    """Yield the nodes that this one is computed from, itself first; with `by_value`, not those read for a shape."""
    seen, waiting = set(), [node]
    while waiting:
        ancestor = waiting.pop()
        if ancestor.get_friendly_name() in seen:
            continue
        seen.add(ancestor.get_friendly_name())
        yield ancestor
        if not (by_value and ancestor.get_type_name() == "ShapeOf"):
            waiting += sources_of(ancestor)
