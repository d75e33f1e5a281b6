"""An encoder that computes next to nothing for padding, in an OpenVINO graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from trimaran.quantize.openvino_mask import ATTENTION, MASK
from trimaran.runtime.openvino_engine import PLACES, TOKENS, Packing

_LAYOUT = ("Reshape", "Transpose")
# Nodes that give each token what rests on that token alone: by themselves, beside constants for all tokens alike, or
# along the features.
_BY_ITSELF = ("Clamp", "Convert", "Elu", "Erf", "Exp", "Gelu", "HSwish", "Relu", "Sigmoid", "Sqrt", "Swish", "Tanh")
_BESIDE_CONSTANTS = ("Add", "Divide", "FakeQuantize", "Maximum", "Minimum", "Multiply", "Power", "Subtract")
_ALONG_FEATURES = ("MVN", "ReduceL2", "ReduceMean", "ReduceSum")
_RANK = 3
_TRIED = ((1, 5), (2, 16), (5, 33))


def packed(model: Any) -> Any | None:
    """A copy of the graph that leaves padding out of all that is computed token by token. None where there is no such
    part, or where the copy's answers are not the same to the last bit.

    There, the tokens of all texts stand in one row, [tokens, 1, features]; attention, and what comes after the encoder,
    sees [texts, tokens, features] with padding as before. Two more inputs tell where the tokens stand; the engine makes
    them of the mask.
    """
    names = {name for found in model.inputs for name in found.get_names()}
    if MASK not in names or TOKENS in names:
        return None
    copy = model.clone()
    graph = _Graph(copy)
    sources = graph.sources()
    if not sources:
        return None
    graph.rewire(sources, graph.token_by_token(sources))
    copy.validate_nodes_and_infer_types()
    return copy if _same(model, copy) else None


class _Graph:
    """Nodes are known by their names; the Python objects for one node differ."""

    def __init__(self, model: Any) -> None:
        self._model, self._order = model, model.get_ordered_ops()
        self._varying: set[str] = set()
        for node in self._order:
            if node.get_type_name() == "Parameter" or any(_name(one) in self._varying for one in _sources(node)):
                self._varying.add(_name(node))

    def sources(self) -> list[Any]:
        """Outputs at which texts become tokens: what enters the first layer, and what comes out of each attention."""
        attentions = [node for node in self._order if node.get_type_name() == ATTENTION]
        given = [self._joined_heads(node) for node in attentions]
        entry = self._entry(given[0]) if given else None
        found = [entry, *given] if entry is not None else []
        return found if all(_has_features(output) for output in found) else []

    def token_by_token(self, sources: list[Any]) -> set[str]:
        known = {_name(output.get_node()) for output in sources}
        found: set[str] = set()
        for node in self._order:
            if _name(node) in known or not _has_features(node.output(0)):
                continue
            varying = [_name(one) in self._varying for one in _sources(node)]
            reached = all(_name(one) in known for one, varies in zip(_sources(node), varying, strict=True) if varies)
            if any(varying) and reached and _token_by_token(node, varying):
                known.add(_name(node))
                found.add(_name(node))
        return found

    def rewire(self, sources: list[Any], inner: set[str]) -> None:
        import openvino as ov
        import openvino.opset13 as ops

        tokens, places = ops.parameter([-1], ov.Type.i32), ops.parameter([-1, -1], ov.Type.i32)
        for parameter, name in ((tokens, TOKENS), (places, PLACES)):
            parameter.set_friendly_name(name)
            parameter.output(0).set_names({name})
        first = ops.constant(np.int64(0))
        within = [node for node in self._order if _name(node) in inner]
        readers = {_name(node): list(node.output(0).get_target_inputs()) for node in within}
        for output in sources:
            inside = [one for one in output.get_target_inputs() if _name(one.get_node()) in inner]
            in_a_row = ops.constant(np.array([-1, 1, _features(output)], np.int64))
            given = ops.gather(ops.reshape(output, in_a_row, special_zero=False), tokens, first)
            for one in inside:
                one.replace_source_output(given.output(0))
        for node in within:
            outside = [one for one in readers[_name(node)] if _name(one.get_node()) not in inner]
            if not outside:
                continue
            spread = ops.gather(node.output(0), places, first)
            as_texts = ops.constant(np.array([0, 0, _features(node.output(0))], np.int64))
            texts = ops.reshape(spread, as_texts, special_zero=True)
            for one in outside:
                # Who splits heads takes the features from [texts, tokens, 1, features] as well.
                given = spread if _keeps_texts_and_tokens(one.get_node()) else texts
                one.replace_source_output(given.output(0))
        self._model.add_parameters([tokens, places])

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
        axes = _values(constants[0].get_node()) if varying == [True, False] else []
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


def _features(output: Any) -> int:
    return int(output.get_partial_shape()[_RANK - 1].get_length())


def _keeps_texts_and_tokens(node: Any) -> bool:
    if node.get_type_name() != "Reshape" or not node.get_attributes()["special_zero"]:
        return False
    return _values(node.input(1).get_source_output().get_node())[:2] == [0, 0]


def _values(node: Any) -> list[Any]:
    return list(node.get_data().ravel().tolist()) if node.get_type_name() == "Constant" else []


def _same(model: Any, copy: Any) -> bool:
    """Whether both give the same numbers for whatever is no padding."""
    import openvino as ov

    settings = {"INFERENCE_PRECISION_HINT": "f32"}
    plain, other = (ov.Core().compile_model(one, "CPU", settings).create_infer_request() for one in (model, copy))
    return all(
        np.array_equal(before[shown], after[shown])
        for inputs, shown_tokens in _trials(model)
        for before, after, shown in _outputs_of(plain, other, inputs, shown_tokens)
    )


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


def _outputs_of(plain: Any, other: Any, inputs: dict[str, Any], shown: Any) -> Iterator[tuple[Any, Any, Any]]:
    before = plain.infer(inputs)
    after = other.infer(Packing.of(inputs[MASK]).inputs(inputs))
    for one, two in zip(before.values(), after.values(), strict=True):
        yield one, two, shown if one.shape[:2] == shown.shape else ...


def _sources(node: Any) -> list[Any]:
    return [node.input(place).get_source_output().get_node() for place in range(node.get_input_size())]


def _name(node: Any) -> str:
    return str(node.get_friendly_name())
