"""Rewrites an fp32 ONNX graph in a half type, with casts around the nodes that stay in fp32."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from trimaran.core.errors import ToolError
from trimaran.core.onnx_graph import add_weight, array_of, has_subgraph, infer_types, is_weight, new_node
from trimaran.runtime.text import Array

if TYPE_CHECKING:
    import onnx_ir as ir

Half = Literal["fp16", "bf16"]


@dataclass(frozen=True)
class HalfType:
    """A 16-bit float type."""

    name: Half
    # Its names in ONNX: as a tensor's type, and in the schemas of operators.
    onnx: str
    schema: str
    # The largest and the smallest positive number.
    largest: float
    smallest: float
    # What constants beyond the largest become, with their sign. Masks add the most negative fp32 to scores. For a
    # softmax this number is as good as minus infinity, and two of them can be added without overflow.
    substitute: float = 4096.0


HALF_TYPES: dict[Half, HalfType] = {
    row.name: row
    for row in (
        HalfType("fp16", "FLOAT16", "tensor(float16)", largest=65504.0, smallest=2.0**-24),
        HalfType("bf16", "BFLOAT16", "tensor(bfloat16)", largest=3.3895e38, smallest=2.0**-133),
    )
}


def constants_to_weights(model: ir.Model) -> None:
    """Make weights of `Constant` nodes, in place, so that one loop sees every constant."""
    from onnx_ir.passes.common import LiftConstantsToInitializersPass

    for node in model.graph:
        if has_subgraph(node):
            raise ToolError(f"{node.op_type} {node.name} has a graph of its own, which cannot be converted.")
    LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)


def float_values(model: ir.Model) -> set[ir.Value]:
    """Return all fp32 tensors, weights included, by ONNX's own type inference."""
    import onnx_ir as ir

    infer_types(model)
    values = ir.convenience.create_value_mapping(model.graph).values()
    return {value for value in values if value.dtype == ir.DataType.FLOAT}


def clip_constants(model: ir.Model, half: HalfType) -> list[str]:
    """Replace finite constants that the half type cannot hold by its substitute, in place; return their names."""
    import onnx_ir as ir

    clipped = []
    for name, value in model.graph.initializers.items():
        if value.const_value.dtype == ir.DataType.FLOAT and (array := _clipped(array_of(value), half)) is not None:
            value.const_value = ir.Tensor(array, name=name)
            clipped.append(name)
    for node in model.graph:
        if node.op_type == "ConstantOfShape" and "value" in node.attributes:
            tensor = node.attributes["value"].as_tensor()
            if tensor.dtype == ir.DataType.FLOAT and (array := _clipped(tensor.numpy(), half)) is not None:
                node.attributes["value"] = ir.AttrTensor("value", ir.Tensor(array, name=tensor.name))
                clipped.append(str(tensor.name))
    return clipped


def _clipped(array: Array, half: HalfType) -> Array | None:
    beyond = np.isfinite(array) & (np.abs(array) > half.largest)
    if not beyond.any():
        return None
    return np.where(beyond, np.copysign(np.float32(half.substitute), array), array).astype(np.float32)


def nodes_that_cannot(model: ir.Model, half: HalfType, floats: Collection[ir.Value]) -> dict[str, str]:
    """Return the nodes that must stay in fp32 whatever their numbers: first output to the reason."""
    import onnx

    reasons: dict[str, str] = {}
    for node in model.graph:
        if node.domain != "":
            raise ToolError(
                f"{node.op_type} is of the domain {node.domain}; only plain ONNX operators can be converted.",
                hint="Give the exported graph, not the fused one.",
            )
        vanishing = sorted(str(value.name) for value in node.inputs if _vanishes(value, half))
        if vanishing:
            reasons[node.outputs[0].name] = f"its constant {vanishing[0]} is zero in {half.name}"
        elif not _takes(onnx.defs.get_schema(node.op_type, model.graph.opset_imports[""]), node, half, floats):
            reasons[node.outputs[0].name] = f"{node.op_type} does not exist in {half.name}"
    return reasons


def _vanishes(value: ir.Value | None, half: HalfType) -> bool:
    """Whether this is a single number that becomes zero in the half type."""
    import onnx_ir as ir

    if (
        value is None
        or not is_weight(value)
        or value.const_value.dtype != ir.DataType.FLOAT
        or value.const_value.size != 1
    ):
        return False
    return 0 < abs(float(array_of(value).item())) < half.smallest


def _takes(schema: Any, node: ir.Node, half: HalfType, floats: Collection[ir.Value]) -> bool:
    """Whether every fp32 input and output of the node may have the half type, by the operator's own schema."""
    allowed = {constraint.type_param_str: constraint.allowed_type_strs for constraint in schema.type_constraints}
    for values, parameters in ((node.inputs, schema.inputs), (node.outputs, schema.outputs)):
        for index, value in enumerate(values):
            if value not in floats:
                continue
            parameter = parameters[min(index, len(parameters) - 1)]
            if half.schema not in allowed.get(parameter.type_str, [parameter.type_str]):
                return False
    return True


def to_half(model: ir.Model, half: HalfType, *, keep: Collection[str], half_outputs: bool = False) -> None:
    """Convert the graph in place, but for the nodes whose first output is in `keep`.

    The graph's outputs stay fp32 unless `half_outputs`.
    """
    import onnx_ir as ir
    from onnx_ir.passes.common import RemoveUnusedNodesPass

    graph, wide, narrow = model.graph, ir.DataType.FLOAT, getattr(ir.DataType, half.onnx)
    floats = float_values(model)
    # The type that each node gives its fp32 outputs in the new graph. Weights and inputs are fp32.
    node_types = {node: wide if node.outputs[0].name in keep else narrow for node in graph}
    types = dict.fromkeys(floats, wide)
    types |= {value: dtype for node, dtype in node_types.items() for value in node.outputs if value in floats}
    converted: dict[tuple[ir.Value, ir.DataType], ir.Value] = {}

    def typed(value: ir.Value, dtype: ir.DataType, reader: ir.Node) -> ir.Value:
        """Return the value in this type; its conversion is made once and shared."""
        if types[value] == dtype:
            return value
        if (value, dtype) not in converted and is_weight(value):
            array = array_of(value).astype(dtype.numpy())
            converted[value, dtype] = add_weight(graph, f"{value.name}_{half.name}", array)
        elif (value, dtype) not in converted:
            cast = _cast(value, dtype, f"{value.name}_as_{half.name if dtype == narrow else 'fp32'}")
            reader.prepend(cast)
            converted[value, dtype] = cast.outputs[0]
        return converted[value, dtype]

    for node, node_type in node_types.items():
        for index, value in enumerate(node.inputs):
            if value in floats:
                # A Cast from float reads either type.
                dtype = types[value] if node.op_type == "Cast" else node_type
                node.replace_input_with(index, typed(value, dtype, node))
        if node_type == narrow:
            _retype_attributes(node, narrow)
    for value in floats:
        value.dtype = types[value]
    for index, output in enumerate(graph.outputs):
        if output in floats and types[output] == narrow and not half_outputs:
            name, output.name = output.name, f"{output.name}_inner"
            cast = _cast(output, wide, name)
            graph.append(cast)
            graph.outputs[index] = cast.outputs[0]
    RemoveUnusedNodesPass()(model)


def _cast(value: ir.Value, dtype: ir.DataType, name: str) -> ir.Node:
    node = new_node("Cast", [value], name, to=dtype.value)
    node.outputs[0].dtype, node.outputs[0].shape = dtype, value.shape
    return node


def _retype_attributes(node: ir.Node, narrow: ir.DataType) -> None:
    """Make `Cast(to=FLOAT)` and its like give the half type; convert a ConstantOfShape's value."""
    import onnx_ir as ir

    for name, attribute in list(node.attributes.items()):
        if name in ("to", "dtype", "output_dtype") and attribute.as_int() == ir.DataType.FLOAT.value:
            node.attributes[name] = ir.AttrInt64(name, narrow.value)
        elif attribute.type == ir.AttributeType.TENSOR and attribute.as_tensor().dtype == ir.DataType.FLOAT:
            tensor = attribute.as_tensor()
            node.attributes[name] = ir.AttrTensor(
                name, ir.Tensor(tensor.numpy().astype(narrow.numpy()), name=tensor.name)
            )
