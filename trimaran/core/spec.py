"""The contract that every stage re-checks: which tensors go in and out, over which shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Annotated, Any, Literal

import numpy.typing as npt
from pydantic import BaseModel, BeforeValidator, ConfigDict, model_validator

from trimaran.core.errors import SignatureError, UsageError

Dim = int | str
DType = Literal["int64", "int32", "float32", "float16", "bfloat16"]
Format = Literal["torch", "onnx", "openvino", "tensorrt"]
Precision = Literal["fp32", "fp16", "bf16", "int8-dynamic", "int8-static", "int8-weights"]
Rows = Literal["padded", "packed", "rounded", "equal-length", "alone"]


class Frozen(BaseModel):
    """Base of every fact: immutable, and refusing keys it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TensorSpec(Frozen):
    name: str
    dtype: DType
    dims: tuple[Dim, ...]

    def concrete(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        return tuple(dim if isinstance(dim, int) else sizes[dim] for dim in self.dims)


class Signature(Frozen):
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    @property
    def input_names(self) -> tuple[str, ...]:
        return tuple(spec.name for spec in self.inputs)

    @property
    def output_names(self) -> tuple[str, ...]:
        return tuple(spec.name for spec in self.outputs)

    def check_inputs(self, inputs: Mapping[str, npt.NDArray[Any]]) -> None:
        self._check("input", self.inputs, inputs, {})

    def check_outputs(self, inputs: Mapping[str, npt.NDArray[Any]], outputs: Mapping[str, npt.NDArray[Any]]) -> None:
        """In the order in which a person would look: names, dtypes, axes, shapes."""
        sizes: dict[str, int] = {}
        self._check("input", self.inputs, inputs, sizes)
        self._check("output", self.outputs, outputs, sizes)

    @staticmethod
    def _check(
        kind: str, specs: Sequence[TensorSpec], arrays: Mapping[str, npt.NDArray[Any]], sizes: dict[str, int]
    ) -> None:
        wanted, found = [spec.name for spec in specs], list(arrays)
        if set(wanted) != set(found):
            raise SignatureError(f"{kind} names: wanted {wanted}, found {found}.", wanted=wanted, found=found)
        for spec in specs:
            array = arrays[spec.name]
            if array.dtype.name != spec.dtype:
                raise SignatureError(f"{kind} {spec.name}: wanted dtype {spec.dtype}, found {array.dtype.name}.")
            if array.ndim != len(spec.dims):
                raise SignatureError(f"{kind} {spec.name}: wanted axes {spec.dims}, found {array.ndim} axes.")
            for dim, size in zip(spec.dims, array.shape, strict=True):
                expected = dim if isinstance(dim, int) else sizes.setdefault(dim, size)
                if size != expected:
                    raise SignatureError(
                        f"{kind} {spec.name}: axis {dim!r} wanted {expected}, found {size} (shape {array.shape})."
                    )


class Range(Frozen):
    minimum: int
    typical: int
    maximum: int

    @model_validator(mode="after")
    def _ordered(self) -> Range:
        if not 1 <= self.minimum <= self.typical <= self.maximum:
            raise UsageError(
                f"A range wants 1 <= minimum <= typical <= maximum, found "
                f"{self.minimum} {self.typical} {self.maximum}.",
                hint="Give three numbers, such as --sequence 1 128 256.",
            )
        return self

    @classmethod
    def of(cls, values: Sequence[int]) -> Range:
        if len(values) != 3:
            raise UsageError(f"A range wants three numbers (minimum typical maximum), found {list(values)}.")
        return cls(minimum=values[0], typical=values[1], maximum=values[2])

    def __str__(self) -> str:
        return f"{self.minimum}..{self.typical}..{self.maximum}"


def _range_from_triple(value: object) -> object:
    return Range.of(value) if isinstance(value, (list, tuple)) else value


RangeField = Annotated[Range, BeforeValidator(_range_from_triple)]


class ShapeProfile(Frozen):
    """The one source for ONNX axes, TensorRT profiles, Triton dims and the benchmark grid."""

    batch: RangeField = Range(minimum=1, typical=1, maximum=32)
    sequence: RangeField = Range(minimum=1, typical=128, maximum=256)

    def corners(self) -> tuple[tuple[int, int], ...]:
        """Distinct (batch, sequence) shapes at which a claim over the whole profile is checked."""
        batches = (self.batch.minimum, self.batch.typical, self.batch.maximum)
        sequences = (self.sequence.minimum, self.sequence.typical, self.sequence.maximum)
        return tuple(dict.fromkeys(product(batches, sequences)))

    def clamp_sequence(self, sequence: int) -> int:
        return max(self.sequence.minimum, min(sequence, self.sequence.maximum))


PoolingMode = Literal["mean", "cls", "max", "mean-sqrt-length", "weighted-mean", "last-token"]
Activation = Literal["softmax", "sigmoid", "none"]


class Pooling(Frozen):
    """How token vectors become one vector, inside the graph: layers, pooling, `modules`, whitening, cut, norm.

    `layers` are indices of hidden states (-1 is the last); several are averaged. `modules` are what a
    sentence-transformers folder puts after its pooling, in order: `normalize`, or a folder with a Dense layer.
    """

    mode: PoolingMode = "mean"
    normalize: bool = True
    layers: tuple[int, ...] = (-1,)
    modules: tuple[str, ...] = ()
    whitening: str | None = None
    dimensions: int | None = None


class Sparse(Frozen):
    """How token logits become SPLADE weights over the vocabulary, inside the graph."""

    strategy: Literal["max", "sum"] = "max"
    activation: Literal["relu", "log1p_relu"] = "relu"


class ModelRef(Frozen):
    """A trained model, found and identified; nothing of it is loaded yet.

    `root` is the folder that was given, `directory` the one in it with the encoder's config and weights. `width` is
    the length of an embedding. `default_sequence` is the number of tokens at which the model's own library cuts a text;
    None where no file of the model says it. `module` is the factory `package.module:function` of a model that is no
    folder.
    """

    source: str
    directory: str
    digest: str
    family: str
    task: str
    name: str
    positions: int
    layers: int
    hidden: int
    heads: int
    pooling: Pooling | None = None
    labels: tuple[str, ...] = ()
    default_sequence: int | None = None
    # What sentence-transformers puts before a text, by name, and the name of the one that it puts there unasked.
    prompts: dict[str, str] = {}
    default_prompt: str = ""
    root: str = ""
    inputs: tuple[str, ...] = ()
    vocabulary: int = 0
    width: int = 0
    activation: Activation = "softmax"
    sparse: Sparse | None = None
    extras: tuple[str, ...] = ()
    top_k: int = 0
    module: str | None = None


class TokenizerSpec(Frozen):
    """What a caller must know beyond `tokenizer.json` to build the engine's inputs."""

    pad_id: int
    pad_type_id: int = 0
    pad_side: Literal["right", "left"] = "right"
    inputs: tuple[str, ...]
    # Words to put before a text, by name, and the name of those that are put there unasked ("" for none).
    prompts: dict[str, str] = {}
    default_prompt: str = ""
