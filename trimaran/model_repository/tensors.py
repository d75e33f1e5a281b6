"""The tensors of a signature as Triton names them."""

from __future__ import annotations

from collections.abc import Mapping

from trimaran.core.model_config import DataType, TensorConfig
from trimaran.core.spec import TensorSpec

DATA_TYPES: Mapping[str, DataType] = {
    "int64": "TYPE_INT64",
    "int32": "TYPE_INT32",
    "float32": "TYPE_FP32",
    "float16": "TYPE_FP16",
    "bfloat16": "TYPE_BF16",
}


def tensor_from_spec(spec: TensorSpec) -> TensorConfig:
    return TensorConfig(name=spec.name, data_type=DATA_TYPES[spec.dtype], dims=without_batch(spec))


def without_batch(spec: TensorSpec) -> tuple[int, ...]:
    return tuple(dim if isinstance(dim, int) else -1 for dim in spec.dims[1:])
