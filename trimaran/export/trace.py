"""Runs one of torch's two exporters, and gives the graph and its weights apart, with the names of the signature."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trimaran.core.choices import Exporter
from trimaran.core.errors import ToolError, first_line
from trimaran.core.families import EXPORTERS
from trimaran.core.onnx_graph import drop_identities, share_equal_weights
from trimaran.core.spec import Signature
from trimaran.export.fold import fold_constants
from trimaran.export.quiet import quiet
from trimaran.runtime.text import Array

if TYPE_CHECKING:
    import onnx_ir as ir

# torch's dynamo exporter names inner values `embedding` or `logits`; outputs with these names would collide.
PREFIX = "output."


def trace(
    module: Any,
    signature: Signature,
    sample: Callable[[int, int], dict[str, Array]],
    *,
    exporter: Exporter,
    opset: int,
) -> tuple[ir.Model, int]:
    """The graph with its weights, and the bytes saved because equal weights are stored once.

    The weights are views into the module, which must stay alive until they are written.
    """
    import torch

    inputs = sample(2, 8)
    arguments = tuple(torch.from_numpy(inputs[name]) for name in signature.input_names)
    try:
        with quiet(), torch.inference_mode():
            model = _EXPORTERS[exporter](module, arguments, signature, opset)
    except (RuntimeError, ValueError, TypeError, IndexError, torch.onnx.errors.OnnxExporterError) as error:
        other = next(name for name in EXPORTERS if name != exporter)
        raise ToolError(
            f"torch's {exporter} exporter failed: {first_line(error)}",
            hint=f"Try the other one: --exporter {other}.",
        ) from error
    _rename_outputs(model)
    _restore_inputs(model, signature)
    _name_axes(model, signature)
    drop_identities(model)
    fold_constants(model)
    return model, share_equal_weights(model)


def _torchscript(module: Any, arguments: tuple[Any, ...], signature: Signature, opset: int) -> ir.Model:
    """Exports without parameters and without constant folding, so that no weight is copied: they become inputs."""
    import onnx
    import onnx_ir as ir
    import torch

    stream = io.BytesIO()
    torch.onnx.export(
        module,
        arguments,
        stream,
        dynamo=False,
        opset_version=opset,
        export_params=False,
        do_constant_folding=False,
        input_names=list(signature.input_names),
        output_names=_output_names(signature),
        dynamic_axes={
            name: {index: dim for index, dim in enumerate(spec.dims) if isinstance(dim, str)}
            for name, spec in zip(
                (*signature.input_names, *_output_names(signature)),
                (*signature.inputs, *signature.outputs),
                strict=True,
            )
        },
    )
    model = ir.from_proto(onnx.load_from_string(stream.getvalue()))
    state = module.state_dict()
    weights = [value for value in model.graph.inputs if value.name not in signature.input_names]
    if unknown := [value.name for value in weights if value.name not in state]:
        raise RuntimeError(f"it made a weight of its own, {unknown[0]}, which the module does not have")
    for value in weights:
        value.const_value = ir.Tensor(state[value.name].cpu().numpy(), name=value.name)
        model.graph.inputs.remove(value)
        model.graph.register_initializer(value)
    return model


def _dynamo(module: Any, arguments: tuple[Any, ...], signature: Signature, opset: int) -> ir.Model:
    import onnx_ir as ir
    import torch

    axes = [
        {index: torch.export.Dim.DYNAMIC for index, dim in enumerate(spec.dims) if isinstance(dim, str)}
        for spec in signature.inputs
    ]
    program = torch.onnx.export(
        module,
        arguments,
        dynamo=True,
        opset_version=opset,
        input_names=list(signature.input_names),
        output_names=_output_names(signature),
        # The module takes its inputs as *arrays, which torch.export sees as one argument.
        dynamic_shapes=(tuple(axes),),
        verbose=False,
    )
    for value in program.model.graph.initializers.values():
        value.const_value = ir.Tensor(value.const_value.numpy(), name=value.name)
    return program.model


_EXPORTERS: dict[Exporter, Callable[..., ir.Model]] = {
    "torchscript": _torchscript,
    "dynamo": _dynamo,
}


def _output_names(signature: Signature) -> list[str]:
    return [f"{PREFIX}{name}" for name in signature.output_names]


def _rename_outputs(model: ir.Model) -> None:
    """Take the prefix off the outputs' names; an inner value that has such a name already gets another one."""
    from onnx_ir.passes.common import NameFixPass

    for value in model.graph.outputs:
        value.name = value.name.removeprefix(PREFIX)
    NameFixPass()(model)


def _restore_inputs(model: ir.Model, signature: Signature) -> None:
    """Puts back inputs that no node reads, such as unused segment ids: the exporters drop them."""
    import onnx_ir as ir

    values = {value.name: value for value in model.graph.inputs}
    model.graph.inputs.clear()
    for spec in signature.inputs:
        unread = ir.val(spec.name, ir.DataType.INT64, list(spec.dims))
        model.graph.inputs.append(values.get(spec.name, unread))


def _name_axes(model: ir.Model, signature: Signature) -> None:
    """The exporters name axes as they please; ours are the signature's."""
    import onnx_ir as ir

    specs = {spec.name: spec for spec in (*signature.inputs, *signature.outputs)}
    for value in (*model.graph.inputs, *model.graph.outputs):
        if value.name in specs and value.shape is not None and len(value.shape) == len(specs[value.name].dims):
            value.shape = ir.Shape(specs[value.name].dims)
