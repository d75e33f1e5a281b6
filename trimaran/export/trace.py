"""Runs one of torch's two exporters, and gives the graph and its weights apart, with the names of the signature."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy.typing as npt

from trimaran.core.errors import ToolError, first_line
from trimaran.core.families import EXPORTERS, Exporter
from trimaran.core.onnx_graph import drop_identities, merge_equal, rename_outputs
from trimaran.core.onnx_write import weights_from_arrays
from trimaran.core.spec import Signature
from trimaran.export.fold import fold_constants
from trimaran.export.quiet import quiet

Array = npt.NDArray[Any]
# torch's dynamo exporter names inner values `embedding` or `logits`; outputs with these names would collide.
PREFIX = "output."


def trace(
    module: Any,
    signature: Signature,
    sample: Callable[[int, int], dict[str, Array]],
    *,
    exporter: Exporter,
    opset: int,
) -> tuple[Any, dict[str, Array], int]:
    """The graph, its weights by name, and the bytes saved because equal weights are stored once.

    The weights are views into the module, which must stay alive until they are written.
    """
    import torch

    inputs = sample(2, 8)
    arguments = tuple(torch.from_numpy(inputs[name]) for name in signature.input_names)
    try:
        with quiet(), torch.inference_mode():
            model, weights = _EXPORTERS[exporter](module, arguments, signature, opset)
    except (RuntimeError, ValueError, TypeError, IndexError, torch.onnx.errors.OnnxExporterError) as error:
        other = next(name for name in EXPORTERS if name != exporter)
        raise ToolError(
            f"torch's {exporter} exporter failed: {first_line(error)}",
            hint=f"Try the other one: --exporter {other}.",
        ) from error
    rename_outputs(model, PREFIX)
    _restore_inputs(model, signature)
    _name_axes(model, signature)
    drop_identities(model.graph, set(weights))
    fold_constants(model, weights)
    dropped, saved = merge_equal(model.graph, weights_from_arrays(weights))
    return model, {name: array for name, array in weights.items() if name not in dropped}, saved


def _torchscript(
    module: Any, arguments: tuple[Any, ...], signature: Signature, opset: int
) -> tuple[Any, dict[str, Array]]:
    """Exports without parameters and without constant folding, so that no weight is copied: they become inputs."""
    import onnx
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
    model = onnx.load_from_string(stream.getvalue())
    state = module.state_dict()
    weights = [value.name for value in model.graph.input if value.name not in signature.input_names]
    if unknown := [name for name in weights if name not in state]:
        raise RuntimeError(f"it made a weight of its own, {unknown[0]}, which the module does not have")
    return model, {name: state[name].cpu().numpy() for name in weights}


def _dynamo(module: Any, arguments: tuple[Any, ...], signature: Signature, opset: int) -> tuple[Any, dict[str, Array]]:
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
    initializers = program.model.graph.initializers
    weights = {name: value.const_value.numpy() for name, value in initializers.items()}
    initializers.clear()
    return program.model_proto, weights


_EXPORTERS: dict[Exporter, Callable[..., tuple[Any, dict[str, Array]]]] = {
    "torchscript": _torchscript,
    "dynamo": _dynamo,
}


def _output_names(signature: Signature) -> list[str]:
    return [f"{PREFIX}{name}" for name in signature.output_names]


def _restore_inputs(model: Any, signature: Signature) -> None:
    """Puts back inputs that no node reads, such as unused segment ids: the exporters drop them."""
    import onnx

    values = {value.name: value for value in model.graph.input}
    del model.graph.input[:]
    for spec in signature.inputs:
        unread = onnx.helper.make_tensor_value_info(spec.name, onnx.TensorProto.INT64, spec.dims)
        model.graph.input.append(values.get(spec.name, unread))


def _name_axes(model: Any, signature: Signature) -> None:
    """Gives the axes of inputs and outputs the names and sizes of the signature."""
    specs = {spec.name: spec for spec in (*signature.inputs, *signature.outputs)}
    for value in (*model.graph.input, *model.graph.output):
        shape = value.type.tensor_type.shape
        if value.name not in specs or len(shape.dim) != len(specs[value.name].dims):
            continue
        for dim, size in zip(shape.dim, specs[value.name].dims, strict=True):
            if isinstance(size, str):
                dim.dim_param = size
            else:
                dim.dim_value = size
    del model.graph.value_info[:]
