"""Writes an ONNX file one weight at a time, so that no second copy of the weights is ever in memory.

`onnx_ir.save` does this for weights in a file beside the graph. For weights inside the graph it builds the whole file
in memory first. That file is therefore written here: its nodes, then each weight, in protobuf's wire format.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx_ir as ir

# Protobuf stops at 2 GiB; a margin is left for the nodes.
EXTERNAL_ABOVE_BYTES = 1_900_000_000
WEIGHTS_FILE = "model.onnx.data"
# In the file beside the graph, weights begin at page bounds, so that a runtime can map them into memory. Tiny weights
# stay in the graph.
_PAGE_BYTES, _TINY_BYTES = 4096, 1024
_LENGTH_DELIMITED = 2


def write_model(model: ir.Model, path: Path, *, external_above_bytes: int = EXTERNAL_ABOVE_BYTES) -> bool:
    """Write the model; return whether its weights went into a file beside it, because together they pass the limit.

    The model is unchanged afterwards. Inferred shapes of inner values are not written.
    """
    import onnx_ir as ir

    values = list(model.graph.initializers.values())
    tensors = [value.const_value for value in values]
    external = bool(sum(tensor.nbytes for tensor in tensors) > external_above_bytes)
    try:
        if external:
            ir.external_data.unload_from_model(
                model,
                path.parent,
                WEIGHTS_FILE,
                size_threshold_bytes=_TINY_BYTES - 1,
                alignment=_PAGE_BYTES,
                align_threshold=0,
            )
        model.graph.initializers.clear()
        _write_file(path, ir.to_proto(model), values, external=external)
    except OSError as error:
        # numpy writes weights with C's fwrite and gives no error number when the disk is full.
        if error.errno is None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path)) from error
        raise
    finally:
        for value, tensor in zip(values, tensors, strict=True):
            value.const_value = tensor
            model.graph.register_initializer(value)
    return external


def _write_file(path: Path, model: Any, weights: Sequence[ir.Value], *, external: bool) -> None:
    """Write the message `model`, which has no weights, with `weights` as the last fields of its graph.

    In protobuf a message's length stands before it. The graph's length is the sum of its parts, so it is known before
    any weight is read.
    """
    import onnx

    del model.graph.value_info[:]
    graph = model.graph.SerializeToString()
    model.ClearField("graph")
    entries = [_entry(value, external=external) for value in weights]
    size = len(graph) + sum(len(entry) for entry in entries)
    size += sum(value.const_value.nbytes for value in weights if not (external and _is_beside(value)))
    with path.open("wb") as stream:
        stream.write(model.SerializeToString() + _tag(onnx.ModelProto, "graph") + _varint(size) + graph)
        for value, entry in zip(weights, entries, strict=True):
            stream.write(entry)
            if not (external and _is_beside(value)):
                value.const_value.tofile(stream)


def _entry(value: ir.Value, *, external: bool) -> bytes:
    """Return the weight's field in the graph, up to where its numbers begin."""
    import onnx
    import onnx_ir as ir

    tensor, numbers, size_bytes = value.const_value, b"", 0
    if external and _is_beside(value):
        header = ir.serde.serialize_tensor(tensor).SerializeToString()
    else:
        header = onnx.TensorProto(
            name=value.name, data_type=tensor.dtype.value, dims=tensor.shape.numpy()
        ).SerializeToString()
        numbers, size_bytes = _tag(onnx.TensorProto, "raw_data") + _varint(tensor.nbytes), tensor.nbytes
    length = _varint(len(header) + len(numbers) + size_bytes)
    return bytes(_tag(onnx.GraphProto, "initializer") + length + header + numbers)


def _is_beside(value: ir.Value) -> bool:
    import onnx_ir as ir

    return isinstance(value.const_value, ir.ExternalTensor)


def _tag(message: Any, field: str) -> bytes:
    return _varint(message.DESCRIPTOR.fields_by_name[field].number << 3 | _LENGTH_DELIMITED)


def _varint(value: int) -> bytes:
    parts = []
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])
