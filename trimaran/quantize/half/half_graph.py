"""Rewrites an fp32 ONNX graph in a half type, with casts around the nodes that stay in fp32."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from trimaran.core.errors import ToolError
from trimaran.quantize.activations import float_tensors

Array = npt.NDArray[Any]
Half = Literal["fp16", "bf16"]


@dataclass(frozen=True)
class HalfType:
    """`largest` and `smallest` finite magnitudes; constants beyond become `substitute`, with their sign."""

    name: Half
    onnx: str
    schema: str
    largest: float
    smallest: float
    # Masks add the most negative fp32 to scores. This is as good as minus infinity to a softmax, and two of them
    # can be added without overflow.
    substitute: float = 4096.0


HALF_TYPES: dict[Half, HalfType] = {
    row.name: row
    for row in (
        HalfType("fp16", "FLOAT16", "tensor(float16)", largest=65504.0, smallest=2.0**-24),
        HalfType("bf16", "BFLOAT16", "tensor(bfloat16)", largest=3.3895e38, smallest=2.0**-133),
    )
}


def constants_to_initializers(model: Any) -> None:
    """In place: `Constant` nodes become initializers, so that one loop sees every constant."""
    import onnx

    graph = model.graph
    kept = []
    for node in graph.node:
        values = {attribute.name: attribute for attribute in node.attribute}
        if any(attribute.HasField("g") for attribute in node.attribute):
            raise ToolError(f"{node.op_type} {node.name} has a graph of its own, which cannot be converted.")
        if node.op_type != "Constant":
            kept.append(node)
        elif "value" in values:
            tensor = graph.initializer.add()
            tensor.CopyFrom(values["value"].t)
            tensor.name = node.output[0]
        else:
            value = onnx.helper.get_attribute_value(next(iter(values.values())))
            array = np.asarray(value, np.float32 if "float" in next(iter(values)) else np.int64)
            graph.initializer.append(onnx.numpy_helper.from_array(array, node.output[0]))
    del graph.node[:]
    graph.node.extend(kept)


def clip_constants(model: Any, half: HalfType) -> list[str]:
    """In place: finite constants that the half type cannot hold get its substitute; returns their names."""
    import onnx

    clipped = []
    tensors = [*model.graph.initializer, *_constant_of_shape(model)]
    for tensor in tensors:
        if tensor.data_type != onnx.TensorProto.FLOAT:
            continue
        array = onnx.numpy_helper.to_array(tensor)
        beyond = np.isfinite(array) & (np.abs(array) > half.largest)
        if beyond.any():
            fixed = np.where(beyond, np.copysign(np.float32(half.substitute), array), array).astype(np.float32)
            name = tensor.name
            tensor.CopyFrom(onnx.numpy_helper.from_array(fixed, name))
            clipped.append(name)
    return clipped


def nodes_that_cannot(model: Any, half: HalfType, floats: Collection[str]) -> dict[str, str]:
    """Nodes that must stay in fp32 whatever their ranges: first output -> why."""
    import onnx

    opset = next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    vanishing = {
        tensor.name
        for tensor in model.graph.initializer
        if tensor.data_type == onnx.TensorProto.FLOAT
        and int(np.prod(tensor.dims)) == 1
        and 0 < abs(float(onnx.numpy_helper.to_array(tensor).item())) < half.smallest
    }
    found: dict[str, str] = {}
    for node in model.graph.node:
        if node.domain not in ("", "ai.onnx"):
            raise ToolError(
                f"{node.op_type} is of the domain {node.domain}; only plain ONNX operators can be converted.",
                hint="Give the exported graph, not the fused one.",
            )
        if tiny := sorted(vanishing & set(node.input)):
            found[node.output[0]] = f"its constant {tiny[0]} is zero in {half.name}"
        elif not _takes(onnx.defs.get_schema(node.op_type, opset), node, half, floats):
            found[node.output[0]] = f"{node.op_type} does not exist in {half.name}"
    return found


def to_half(model: Any, half: HalfType, *, keep: Collection[str], half_outputs: bool = False) -> None:
    """In place. `keep` names nodes by their first output. Graph outputs stay fp32 unless `half_outputs`."""
    import onnx

    graph, wide, narrow = model.graph, onnx.TensorProto.FLOAT, getattr(onnx.TensorProto, half.onnx)
    floats = float_tensors(model)
    weights = {tensor.name: tensor for tensor in graph.initializer if tensor.data_type == wide}
    outputs = {output.name for output in graph.output if output.name in floats}
    # The type that each fp32 tensor of the old graph has in the new one, by who makes it.
    kinds = dict.fromkeys(floats & {value.name for value in graph.input}, wide)
    for node in graph.node:
        kinds.update({name: wide if node.output[0] in keep else narrow for name in node.output if name in floats})
    nodes: list[Any] = []
    made: set[str] = set()
    used_wide: set[str] = set()

    def typed(name: str, kind: int) -> str:
        """The tensor in this type; a cast is made once and shared."""
        if name in weights:
            if kind == wide:
                used_wide.add(name)
                return name
            return f"{name}_{half.name}"
        if kinds[name] == kind:
            return inner(name)
        cast = f"{name}_as_{half.name if kind == narrow else 'fp32'}"
        if cast not in made:
            made.add(cast)
            nodes.append(onnx.helper.make_node("Cast", [inner(name)], [cast], name=cast, to=kind))
        return cast

    def inner(name: str) -> str:
        return f"{name}_inner" if name in outputs and kinds[name] == narrow and not half_outputs else name

    for node in graph.node:
        kind = wide if node.output[0] in keep else narrow
        # A cast from float takes what there is; its result has the type that it names.
        for index, name in enumerate(node.input):
            if name in floats:
                node.input[index] = typed(name, kinds.get(name, wide) if node.op_type == "Cast" else kind)
        for index, name in enumerate(node.output):
            if name in floats:
                node.output[index] = inner(name)
        if kind == narrow:
            _retype_attributes(node, wide, narrow)
        nodes.append(node)
    for output in graph.output:
        if output.name not in outputs:
            continue
        if half_outputs and kinds[output.name] == narrow:
            output.type.tensor_type.elem_type = narrow
        elif kinds[output.name] == narrow:
            nodes.append(onnx.helper.make_node("Cast", [inner(output.name)], [output.name], name=output.name, to=wide))
    del graph.node[:]
    graph.node.extend(nodes)
    del graph.value_info[:]
    _retype_weights(graph, weights, narrow, half, used_wide)


def _retype_weights(graph: Any, weights: dict[str, Any], narrow: int, half: HalfType, used_wide: set[str]) -> None:
    used = {name for node in graph.node for name in node.input}
    kept = [tensor for tensor in graph.initializer if tensor.name not in weights or tensor.name in used_wide]
    converted = [
        _as_half(tensor, narrow, f"{name}_{half.name}")
        for name, tensor in weights.items()
        if f"{name}_{half.name}" in used
    ]
    kept = [tensor for tensor in kept if tensor.name in used]
    merged = [*kept, *converted]
    del graph.initializer[:]
    graph.initializer.extend(merged)


def _as_half(tensor: Any, narrow: int, name: str) -> Any:
    import ml_dtypes
    import onnx

    array = onnx.numpy_helper.to_array(tensor)
    if narrow == onnx.TensorProto.FLOAT16:
        return onnx.numpy_helper.from_array(array.astype(np.float16), name)
    bits = array.astype(ml_dtypes.bfloat16).view(np.uint16)
    return onnx.TensorProto(name=name, data_type=narrow, dims=array.shape, raw_data=bits.tobytes())


def _retype_attributes(node: Any, wide: int, narrow: int) -> None:
    """`Cast(to=FLOAT)` and its like give the half type; a ConstantOfShape's value is converted."""
    for attribute in node.attribute:
        if attribute.name in ("to", "dtype", "output_dtype") and attribute.i == wide:
            attribute.i = narrow
        elif attribute.HasField("t") and attribute.t.data_type == wide:
            attribute.t.CopyFrom(_as_half(attribute.t, narrow, attribute.t.name))


def _constant_of_shape(model: Any) -> list[Any]:
    return [
        attribute.t
        for node in model.graph.node
        if node.op_type == "ConstantOfShape"
        for attribute in node.attribute
        if attribute.name == "value"
    ]


def _takes(schema: Any, node: Any, half: HalfType, floats: Collection[str]) -> bool:
    """Whether every fp32 input and output of the node may have the half type, by the operator's own schema."""
    allowed = {constraint.type_param_str: constraint.allowed_type_strs for constraint in schema.type_constraints}
    for names, parameters in ((node.input, schema.inputs), (node.output, schema.outputs)):
        for index, name in enumerate(names):
            if name not in floats:
                continue
            parameter = parameters[min(index, len(parameters) - 1)]
            if half.schema not in allowed.get(parameter.type_str, [parameter.type_str]):
                return False
    return True
