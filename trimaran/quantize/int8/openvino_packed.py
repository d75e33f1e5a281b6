"""Finds what an OpenVINO graph computes token by token, so that padding can be left out of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from trimaran.quantize.int8.openvino_mask import ATTENTION, MASK
from trimaran.runtime.openvino_engine import Packing, Plan, constant_values, packed

_LAYOUT = ("Reshape", "Transpose")
# Nodes that give each token what rests on that token alone: by themselves, beside constants for all tokens alike, or
# along the features.
_BY_ITSELF = ("Clamp", "Convert", "Elu", "Erf", "Exp", "Gelu", "HSwish", "Relu", "Sigmoid", "Sqrt", "Swish", "Tanh")
_BESIDE_CONSTANTS = ("Add", "Divide", "FakeQuantize", "Maximum", "Minimum", "Multiply", "Power", "Subtract")
_ALONG_FEATURES = ("MVN", "ReduceL2", "ReduceMean", "ReduceSum")
_RANK = 3
_TRIED = ((1, 5), (2, 16), (5, 33))


def note_packing(model: Any) -> bool:
    """Notes in the graph how it can leave padding out of all that is computed token by token. False where there is no
    such part, or where answers would not be the same to the last bit.
    """
    if MASK not in {name for found in model.inputs for name in found.get_names()}:
        return False
    plan = _Graph(model).plan()
    if plan is None or not _same(model, packed(model, plan)):
        return False
    plan.note(model)
    return True


class _Graph:
    """Nodes are known by their names; the Python objects for one node differ."""

    def __init__(self, model: Any) -> None:
        self._order = model.get_ordered_ops()
        self._varying: set[str] = set()
        for node in self._order:
            if node.get_type_name() == "Parameter" or any(_name(one) in self._varying for one in _sources(node)):
                self._varying.add(_name(node))

    def plan(self) -> Plan | None:
        """Texts become tokens where something enters the first layer, and where attention gives its part."""
        attentions = [node for node in self._order if node.get_type_name() == ATTENTION]
        given = [self._joined_heads(node) for node in attentions]
        entry = self._entry(given[0]) if given else None
        if entry is None or not all(map(_has_features, (entry, *given))):
            return None
        sources = [_name(output.get_node()) for output in (entry, *given)]
        return Plan(sources, self._token_by_token(sources))

    def _token_by_token(self, sources: list[str]) -> list[str]:
        found: dict[str, None] = dict.fromkeys(sources)
        for node in self._order:
            if _name(node) in found or not _has_features(node.output(0)):
                continue
            varying = [_name(one) in self._varying for one in _sources(node)]
            reached = all(_name(one) in found for one, varies in zip(_sources(node), varying, strict=True) if varies)
            if any(varying) and reached and _token_by_token(node, varying):
                found[_name(node)] = None
        return list(found)[len(sources) :]

    def _joined_heads(self, attention: Any) -> Any:
        output = attention.output(0)
        while True:
            readers = list(output.get_target_inputs())
            if len(readers) != 1 or readers[0].get_node().get_type_name() not in _LAYOUT:
                return output
            output = readers[0].get_node().output(0)

    def _entry(self, given: Any) -> Any | None:
        """What the first attention's output is added to."""
        after = {_name(given.get_node())}
        for node in self._order:
            others = [place for place, one in enumerate(_sources(node)) if _name(one) not in after]
            if len(others) == node.get_input_size():
                continue
            after.add(_name(node))
            for place in others:
                output = node.input(place).get_source_output()
                if _name(output.get_node()) in self._varying:
                    return output
        return None


def _token_by_token(node: Any, varying: list[bool]) -> bool:
    kind = node.get_type_name()
    constants = [node.input(place).get_source_output() for place, varies in enumerate(varying) if not varies]
    if kind == "MatMul":
        flat = varying == [True, False] and len(constants[0].get_partial_shape()) == 2
        return flat and not node.get_attributes()["transpose_a"]
    if kind in _ALONG_FEATURES:
        axes = constant_values(constants[0].get_node()) if varying == [True, False] else []
        return len(axes) == 1 and axes[0] in (-1, _RANK - 1) and node.get_attributes().get("keep_dims", True)
    if kind in _BESIDE_CONSTANTS:
        return all(_same_for_all_tokens(output) for output in constants)
    return kind in _BY_ITSELF


def _same_for_all_tokens(constant: Any) -> bool:
    shape = constant.get_partial_shape()
    return shape.is_static and len(shape) <= _RANK and all(size.get_length() == 1 for size in list(shape)[:-1])


def _has_features(output: Any) -> bool:
    shape = output.get_partial_shape()
    return shape.rank.is_static and len(shape) == _RANK and shape[_RANK - 1].is_static


def _same(model: Any, copy: Any) -> bool:
    """Whether both give the same numbers for whatever is no padding. One is compiled after the other."""
    trials = list(_trials(model))
    before = _answers(model, [inputs for inputs, _ in trials])
    after = _answers(copy, [Packing.of(inputs[MASK]).inputs(inputs) for inputs, _ in trials])
    return all(
        np.array_equal(*(array[shown] if array.shape[:2] == shown.shape else array for array in pair))
        for (_, shown), plain, other in zip(trials, before, after, strict=True)
        for pair in zip(plain, other, strict=True)
    )


def _answers(model: Any, calls: list[dict[str, Any]]) -> list[list[Any]]:
    import openvino as ov

    request = ov.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"}).create_infer_request()
    return [[array.copy() for array in request.infer(inputs).values()] for inputs in calls]


def _trials(model: Any) -> Iterator[tuple[dict[str, Any], npt.NDArray[np.bool_]]]:
    generator = np.random.default_rng(0)
    for rows, tokens in _TRIED:
        lengths = np.array([tokens, *generator.integers(1, tokens, rows - 1)])
        shown = np.arange(tokens) < lengths[:, None]
        inputs = {}
        for found in model.inputs:
            kind = found.get_element_type().to_dtype()
            inputs[found.get_any_name()] = np.zeros((rows, tokens), kind)
        inputs["input_ids"] = generator.integers(2, 9, (rows, tokens))
        yield {**inputs, MASK: shown.astype(inputs[MASK].dtype)}, shown


def _sources(node: Any) -> list[Any]:
    return [node.input(place).get_source_output().get_node() for place in range(node.get_input_size())]


def _name(node: Any) -> str:
    return str(node.get_friendly_name())
