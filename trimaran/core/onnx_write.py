"""Writes an ONNX file one weight at a time, so that no second copy of the weights is ever in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

# Protobuf stops at 2 GiB; a margin is left for the nodes.
EXTERNAL_ABOVE_BYTES = 1_900_000_000
WEIGHTS_FILE = "model.onnx.data"
# Beside the graph weights begin at page bounds, so that a runtime can map them; tiny ones stay in the graph.
_PAGE_BYTES, _TINY_BYTES = 4096, 1024
_LENGTH_DELIMITED = 2

Array = npt.NDArray[Any]


class Weight(NamedTuple):
    """A tensor to be written: what the graph says of it, and its bytes when asked for."""

    name: str
    data_type: int
    dims: Sequence[int]
    size_bytes: int
    content: Callable[[], Any]


def weights_from_arrays(arrays: Mapping[str, Array]) -> list[Weight]:
    import onnx

    return [
        Weight(
            name,
            onnx.helper.np_dtype_to_tensor_dtype(array.dtype),
            array.shape,
            array.nbytes,
            partial(_bytes_of, array),
        )
        for name, array in arrays.items()
    ]


def weights_from_tensors(tensors: Iterable[Any], beside: Path | None = None) -> list[Weight]:
    """The initializers of a graph, packed or not; those that lie outside it are read from the folder `beside`."""
    return [_outside(tensor, beside) if tensor.external_data else _inside(tensor) for tensor in tensors]


def _inside(tensor: Any) -> Weight:
    size = len(tensor.raw_data) if tensor.HasField("raw_data") else len(_raw_data(tensor))
    return Weight(tensor.name, tensor.data_type, tensor.dims, size, partial(_raw_data, tensor))


def _outside(tensor: Any, beside: Path | None) -> Weight:
    place = {entry.key: entry.value for entry in tensor.external_data}
    if beside is None:
        raise ValueError(f"The weight {tensor.name} lies in {place['location']}, and no folder was given.")
    offset, size = int(place.get("offset", 0)), int(place["length"])
    content = partial(_mapped, beside / place["location"], offset, size)
    return Weight(tensor.name, tensor.data_type, tensor.dims, size, content)


def _mapped(path: Path, offset: int, size_bytes: int) -> memoryview:
    return np.memmap(path, np.uint8, mode="r", offset=offset, shape=(size_bytes,)).data


def _bytes_of(array: Array) -> memoryview:
    """A transposed view becomes a copy here, one at a time; a contiguous array is written as it lies."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _raw_data(tensor: Any) -> bytes:
    import onnx

    if not tensor.HasField("raw_data"):
        tensor = onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor))
    return bytes(tensor.raw_data)


def write_graph(
    model: Any, weights: Sequence[Weight], path: Path, *, external_above_bytes: int = EXTERNAL_ABOVE_BYTES
) -> bool:
    """Writes `model` with `weights` for its initializers; returns whether they lie in a file beside it."""
    external = sum(weight.size_bytes for weight in weights) > external_above_bytes
    if external:
        with path.with_name(WEIGHTS_FILE).open("wb") as beside:
            entries = [_placed(weight, beside) for weight in weights]
    else:
        entries = [(_header(weight), weight) for weight in weights]
    with path.open("wb") as stream:
        _write_model(model, entries, stream)
    return external


def _placed(weight: Weight, beside: BinaryIO) -> tuple[bytes, Weight | None]:
    """The weight's entry in the graph, its bytes written to the file beside unless they are few."""
    import onnx

    if weight.size_bytes < _TINY_BYTES:
        return _header(weight), weight
    beside.write(b"\0" * (-beside.tell() % _PAGE_BYTES))
    facts = {"location": WEIGHTS_FILE, "offset": beside.tell(), "length": weight.size_bytes}
    places = [onnx.StringStringEntryProto(key=key, value=str(value)) for key, value in facts.items()]
    beside.write(weight.content())
    return _header(weight, external_data=places, data_location=onnx.TensorProto.EXTERNAL), None


def _header(weight: Weight, **place: Any) -> bytes:
    import onnx

    tensor = onnx.TensorProto(name=weight.name, data_type=weight.data_type, dims=weight.dims, **place)
    return bytes(tensor.SerializeToString())


def _write_model(model: Any, entries: Sequence[tuple[bytes, Weight | None]], stream: BinaryIO) -> None:
    """Protobuf's wire format by hand: a message's length stands before it, and is known without its bytes."""
    import onnx

    around, graph = _parted(model)
    initializer = _tag(onnx.GraphProto, "initializer")
    raw_data = _tag(onnx.TensorProto, "raw_data")
    heads = []
    for header, weight in entries:
        inner = b"" if weight is None else raw_data + _varint(weight.size_bytes)
        size = len(header) + len(inner) + (0 if weight is None else weight.size_bytes)
        heads.append(initializer + _varint(size) + header + inner)
    total = len(graph) + sum(len(head) for head in heads)
    total += sum(weight.size_bytes for _, weight in entries if weight is not None)
    stream.write(around + _tag(onnx.ModelProto, "graph") + _varint(total) + graph)
    for head, (_, weight) in zip(heads, entries, strict=True):
        stream.write(head)
        if weight is not None:
            stream.write(weight.content())


def _parted(model: Any) -> tuple[bytes, bytes]:
    """The model without its graph, and the graph without its weights."""
    import onnx

    around, graph = onnx.ModelProto(), onnx.GraphProto()
    for source, target, left in ((model, around, "graph"), (model.graph, graph, "initializer")):
        for field, value in source.ListFields():
            if field.name == left:
                continue
            if isinstance(value, (str, bytes, int, float)):
                setattr(target, field.name, value)
            else:
                getattr(target, field.name).MergeFrom(value)
    return bytes(around.SerializeToString()), bytes(graph.SerializeToString())


def _tag(message: Any, field: str) -> bytes:
    return _varint(message.DESCRIPTOR.fields_by_name[field].number << 3 | _LENGTH_DELIMITED)


def _varint(value: int) -> bytes:
    parts = []
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])
