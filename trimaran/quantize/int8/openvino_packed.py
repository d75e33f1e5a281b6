"""Finds which nodes of an OpenVINO graph work token by token, so that they can skip padding.

A linear layer computes each token by itself, but gets [texts, tokens, features] with padding. Packed, it gets the real
tokens of all texts in one row, [tokens, 1, features]. Only attention needs the texts apart. Example: texts of 3 and 5
tokens are 2 x 5 places with padding; packed they are 8 tokens.

The engine packs a graph when it opens it (`runtime/openvino_engine.py`). Here the plan for that is found, tried, and
written into the graph's file: at which nodes to gather the real tokens, and which nodes then see tokens only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trimaran.quantize.int8.openvino_mask import ATTENTION, MASK, sources_of
from trimaran.quantize.padded_calls import agree_where_shown, padded_calls
from trimaran.runtime.openvino_engine import Packing, Plan, constant_values, packed

_LAYOUT = ("Reshape", "Transpose")
# Nodes whose result for a token depends on that token alone: elementwise, elementwise with constants that are the same
# for all tokens, or along the features.
_ELEMENTWISE = ("Clamp", "Convert", "Elu", "Erf", "Exp", "Gelu", "HSwish", "Relu", "Sigmoid", "Sqrt", "Swish", "Tanh")
_WITH_CONSTANTS = ("Add", "Divide", "FakeQuantize", "Maximum", "Minimum", "Multiply", "Power", "Subtract")
_ALONG_FEATURES = ("MVN", "ReduceL2", "ReduceMean", "ReduceSum")
_RANK = 3


def note_packing(model: Any) -> bool:
    """Write the packing plan into the graph; return False if nothing can be packed.

    It cannot if no part works token by token, or if the packed answers differ in any bit.
    """
    if MASK not in {name for parameter in model.inputs for name in parameter.get_names()}:
        return False
    plan = _PackableGraph(model).plan()
    if plan is None or not _answers_alike(model, packed(model, plan)):
        return False
    plan.note(model)
    return True


class _PackableGraph:
    """The nodes in order, and which of them depend on the inputs.

    Nodes are compared by name, because OpenVINO makes a new Python object each time a node is asked for.
    """

    def __init__(self, model: Any) -> None:
        self._order = model.get_ordered_ops()
        self._varying: set[str] = set()
        for node in self._order:
            if node.get_type_name() == "Parameter" or any(
                _name(source) in self._varying for source in sources_of(node)
            ):
                self._varying.add(_name(node))

    def plan(self) -> Plan | None:
        """Gather the real tokens at the encoder's input and after each attention block."""
        attentions = [node for node in self._order if node.get_type_name() == ATTENTION]
        attended = [_joined_heads(node) for node in attentions]
        entry = self._encoder_input(attended[0]) if attended else None
        if entry is None or not all(map(_has_features, (entry, *attended))):
            return None
        gathered = [_name(output.get_node()) for output in (entry, *attended)]
        return Plan(gathered, self._token_by_token(gathered))

    def _token_by_token(self, gathered: list[str]) -> list[str]:
        """Return the nodes that see nothing but gathered tokens and constants, in order."""
        packable = dict.fromkeys(gathered)
        for node in self._order:
            if _name(node) in packable or not _has_features(node.output(0)):
                continue
            names = [_name(source) for source in sources_of(node)]
            varying = [name in self._varying for name in names]
            reached = all(name in packable for name, varies in zip(names, varying, strict=True) if varies)
            if any(varying) and reached and _works_token_by_token(node, varying):
                packable[_name(node)] = None
        return list(packable)[len(gathered) :]

    def _encoder_input(self, attended: Any) -> Any | None:
        """Return what the first attention's result is added to."""
        after = {_name(attended.get_node())}
        for node in self._order:
            others = [index for index, source in enumerate(sources_of(node)) if _name(source) not in after]
            if len(others) == node.get_input_size():
                continue
            after.add(_name(node))
            for index in others:
                output = node.input(index).get_source_output()
                if _name(output.get_node()) in self._varying:
                    return output
        return None


def _joined_heads(attention: Any) -> Any:
    """Return the attention's result after its heads were put side by side again."""
    output = attention.output(0)
    while True:
        readers = list(output.get_target_inputs())
        if len(readers) != 1 or readers[0].get_node().get_type_name() not in _LAYOUT:
            return output
        output = readers[0].get_node().output(0)


def _works_token_by_token(node: Any, varying: list[bool]) -> bool:
    """`varying` says of each input whether it depends on the graph's inputs; the others are constant."""
    operator = node.get_type_name()
    constants = [node.input(index).get_source_output() for index, varies in enumerate(varying) if not varies]
    if operator == "MatMul":
        flat = varying == [True, False] and len(constants[0].get_partial_shape()) == 2
        return flat and not node.get_attributes()["transpose_a"]
    if operator in _ALONG_FEATURES:
        axes = constant_values(constants[0].get_node()) if varying == [True, False] else []
        return len(axes) == 1 and axes[0] in (-1, _RANK - 1) and node.get_attributes().get("keep_dims", True)
    if operator in _WITH_CONSTANTS:
        return all(_same_for_all_tokens(output) for output in constants)
    return operator in _ELEMENTWISE


def _same_for_all_tokens(constant: Any) -> bool:
    shape = constant.get_partial_shape()
    return shape.is_static and len(shape) <= _RANK and all(size.get_length() == 1 for size in list(shape)[:-1])


def _has_features(output: Any) -> bool:
    """Whether this is [texts, tokens, features] with a known number of features."""
    shape = output.get_partial_shape()
    return shape.rank.is_static and len(shape) == _RANK and shape[_RANK - 1].is_static


def _answers_alike(model: Any, copy: Any) -> bool:
    """Whether both give the same numbers wherever there is no padding. One is compiled after the other."""
    calls = list(padded_calls(input_types(model)))
    before = answers_of(model, [call.inputs for call in calls])
    after = answers_of(copy, [Packing.of(call.inputs[MASK]).inputs(call.inputs) for call in calls])
    return agree_where_shown(calls, before, after)


def input_types(model: Any) -> dict[str, Any]:
    return {parameter.get_any_name(): parameter.get_element_type().to_dtype() for parameter in model.inputs}


def answers_of(model: Any, calls: Sequence[dict[str, Any]]) -> list[list[Any]]:
    """Return the outputs of each call, in the graph's order."""
    import openvino as ov

    request = ov.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"}).create_infer_request()
    return [[array.copy() for array in request.infer(inputs).values()] for inputs in calls]


def _name(node: Any) -> str:
    return str(node.get_friendly_name())
