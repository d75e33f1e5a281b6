"""An encoder's attention mask as one row a text, in an OpenVINO graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

MASK = "attention_mask"
ATTENTION = "ScaledDotProductAttention"
_MASK_INPUT = 3
_TRIED = ((1, 5), (2, 8), (3, 17))


def plain_mask(model: Any) -> bool:
    """Hides padding by `attention_mask` alone, [texts, 1, 1, tokens], where that is what the graph does anyway.

    transformers builds its mask by positions, for models that look ahead as well as for those that do not: some 35
    small nodes, which OpenVINO prepares anew for every shape, and a square of numbers for each text. Whether the short
    form is the same is tried on masks of several shapes, to the last bit; where it is not, the graph stays.
    """
    import openvino.opset13 as ops

    attentions = [node for node in model.get_ops() if node.get_type_name() == ATTENTION]
    masked = [node for node in attentions if node.get_input_size() > _MASK_INPUT]
    masks = {_source(node, _MASK_INPUT).get_friendly_name() for node in masked}
    given = [node for node in model.get_parameters() if node.get_friendly_name() == MASK]
    if len(masks) != 1 or not given:
        return False
    hidden = _hiding_value(model, masks.pop())
    if hidden is None:
        return False
    shown = ops.not_equal(given[0], ops.constant(0, dtype=given[0].get_element_type()))
    row = ops.select(shown, ops.constant(np.float32(0)), ops.constant(hidden))
    short = ops.unsqueeze(row, ops.constant(np.array([1, 2], np.int64)))
    for node in attentions:
        node.input(_MASK_INPUT).replace_source_output(short.output(0))
    model.validate_nodes_and_infer_types()
    return True


def _hiding_value(model: Any, name: str) -> np.float32 | None:
    """What the mask of that name adds to hidden tokens, or None if it does anything else than hide those."""
    import openvino as ov

    twin = model.clone()
    mask = next(node for node in twin.get_ops() if node.get_friendly_name() == name)
    if mask.get_output_element_type(0) != ov.Type.f32 or not _rests_on_the_mask_alone(mask):
        return None
    inputs = [node for node in _ancestors(mask) if node.get_type_name() == "Parameter"]
    request = ov.Core().compile_model(ov.Model([mask.output(0)], inputs), "CPU").create_infer_request()
    generator = np.random.default_rng(0)
    found: set[np.float32] = set()
    for rows, tokens in _TRIED:
        shown = generator.integers(2, size=(rows, tokens))
        # A text that shows nothing has no answer anyway; one that hides nothing tells nothing.
        shown[:, 0], shown[:, -1] = 1, 0
        feed = {node.get_friendly_name(): _filled(node, rows, tokens, shown) for node in inputs}
        made = next(iter(request.infer(feed).values()))
        wanted = np.where(shown[:, None, None, :] != 0, np.float32(0), made.min())
        if made.ndim != wanted.ndim or not np.array_equal(made, np.broadcast_to(wanted, made.shape)):
            return None
        found.add(np.float32(made.min()))
    return found.pop() if len(found) == 1 else None


def _rests_on_the_mask_alone(mask: Any) -> bool:
    """Puts an input of its own before whatever is asked for its shape only, so that no layer has to be run."""
    import openvino as ov
    import openvino.opset13 as ops

    for node in [node for node in _ancestors(mask) if node.get_type_name() == "ShapeOf"]:
        source = _source(node, 0)
        if source.get_type_name() == "Parameter" or _inputs_read(source) <= {MASK}:
            continue
        shape = source.get_output_partial_shape(node.input(0).get_source_output().get_index())
        if shape.rank.is_dynamic or len(shape) < len(_TRIED[0]) or not (shape[0].is_dynamic and shape[1].is_dynamic):
            return False
        node.input(0).replace_source_output(ops.parameter(shape, ov.Type.f32).output(0))
    return _inputs_read(mask) == {MASK}


def _inputs_read(node: Any) -> set[str]:
    """Inputs of the graph whose values, not only shapes, the node is computed from."""
    read = _ancestors(node, by_value=True)
    return {found.get_friendly_name() for found in read if found.get_type_name() == "Parameter"}


def _filled(node: Any, rows: int, tokens: int, shown: npt.NDArray[Any]) -> npt.NDArray[Any]:
    kind = node.get_element_type().to_dtype()
    if node.get_friendly_name() == MASK:
        return shown.astype(kind)
    fixed = [size.get_length() for size in list(node.get_partial_shape())[2:]]
    return np.zeros((rows, tokens, *fixed), kind)


def _ancestors(node: Any, *, by_value: bool = False) -> Iterator[Any]:
    """The nodes that this one is computed from, itself first; `by_value` passes over those asked for shapes only."""
    seen, waiting = set(), [node]
    while waiting:
        found = waiting.pop()
        if found.get_friendly_name() in seen:
            continue
        seen.add(found.get_friendly_name())
        yield found
        if not (by_value and found.get_type_name() == "ShapeOf"):
            waiting += [_source(found, place) for place in range(found.get_input_size())]


def _source(node: Any, place: int) -> Any:
    return node.input(place).get_source_output().get_node()
