"""The contract that every stage re-checks: which tensors go in and out, over which shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Annotated, Any, Literal

import numpy.typing as npt
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from trimaran.core.errors import SignatureError, UsageError

Dim = int | str
DType = Literal["int64", "int32", "float32", "float16", "bfloat16"]
Format = Literal["torch", "onnx", "openvino", "tensorrt"]
Precision = Literal["fp32", "fp16", "bf16", "int8-dynamic", "int8-static", "int8-weights"]


class Frozen(BaseModel):
    """Base of every fact: it cannot be changed, and unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TensorSpec(Frozen):
    name: str
    dtype: DType
    # A number is a fixed axis, a name such as `batch` one that differs between calls.
    dims: tuple[Dim, ...]

    def concrete(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape for these sizes of the named axes."""
        return tuple(dim if isinstance(dim, int) else sizes[dim] for dim in self.dims)


class Signature(Frozen):
    """The inputs and outputs of a graph or an engine."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    @property
    def input_names(self) -> tuple[str, ...]:
        return tuple(spec.name for spec in self.inputs)

    @property
    def output_names(self) -> tuple[str, ...]:
        return tuple(spec.name for spec in self.outputs)

    def check_outputs(self, inputs: Mapping[str, npt.NDArray[Any]], outputs: Mapping[str, npt.NDArray[Any]]) -> None:
        """Raises SignatureError at the first difference, in this order: names, dtypes, axes, shapes."""
        sizes: dict[str, int] = {}
        self._check("input", self.inputs, inputs, sizes)
        self._check("output", self.outputs, outputs, sizes)

    @staticmethod
    def _check(
        kind: str, specs: Sequence[TensorSpec], arrays: Mapping[str, npt.NDArray[Any]], sizes: dict[str, int]
    ) -> None:
        names, array_names = [spec.name for spec in specs], list(arrays)
        if set(names) != set(array_names):
            raise SignatureError(f"{kind} names: wanted {names}, found {array_names}.", wanted=names, found=array_names)
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


# Texts are filled up to such sizes, which a stranger's file may name.
_LARGEST_SIZE = 1 << 20
MOST_EXPANDED = 1 << 16


class Range(Frozen):
    """Sizes of one axis. Engines are tuned for `typical`."""

    minimum: int
    typical: int
    maximum: int

    @model_validator(mode="after")
    def _ordered(self) -> Range:
        if not 1 <= self.minimum <= self.typical <= self.maximum <= _LARGEST_SIZE:
            raise UsageError(
                f"A range wants 1 <= minimum <= typical <= maximum <= {_LARGEST_SIZE:,}, found "
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
    """The shapes that a model is proven for. ONNX axes, TensorRT profiles, Triton dims and benchmarks follow it."""

    # Texts in one call.
    batch: RangeField = Range(minimum=1, typical=1, maximum=32)
    # Tokens of the longest text in a call, padding included.
    sequence: RangeField = Range(minimum=1, typical=128, maximum=256)

    def corners(self) -> tuple[tuple[int, int], ...]:
        """Distinct (batch, sequence) shapes at which a claim about the whole profile is checked."""
        batches = (self.batch.minimum, self.batch.typical, self.batch.maximum)
        sequences = (self.sequence.minimum, self.sequence.typical, self.sequence.maximum)
        return tuple(dict.fromkeys(product(batches, sequences)))

    def clamp_sequence(self, sequence: int) -> int:
        return max(self.sequence.minimum, min(sequence, self.sequence.maximum))


def profile_shapes(signature: Signature, profile: ShapeProfile) -> dict[str, list[list[int]]]:
    """Return the minimum, typical and maximum shape of every input, as TensorRT takes them."""
    return {
        spec.name: [
            list(spec.concrete({"batch": getattr(profile.batch, which), "sequence": getattr(profile.sequence, which)}))
            for which in ("minimum", "typical", "maximum")
        ]
        for spec in signature.inputs
    }


PoolingMode = Literal["mean", "cls", "max", "mean-sqrt-length", "weighted-mean", "last-token"]
Activation = Literal["softmax", "sigmoid", "none"]


class Pooling(Frozen):
    """How token vectors become one vector inside the graph: layers, mode, modules, whitening, cut, unit length."""

    mode: PoolingMode = "mean"
    # Scale the finished vector to unit length.
    normalize: bool = True
    # Indices of hidden states; -1 is the last. Several are averaged.
    layers: tuple[int, ...] = (-1,)
    # What a sentence-transformers folder does after its pooling, in order: `normalize`, or a folder with a Dense layer.
    modules: tuple[str, ...] = ()
    # A file that `trimaran whiten` made.
    whitening: str | None = None
    # Keep only this many numbers of the vector.
    dimensions: int | None = None


class Sparse(Frozen):
    """How token logits become SPLADE weights over the vocabulary, inside the graph."""

    strategy: Literal["max", "sum"] = "max"
    activation: Literal["relu", "log1p_relu"] = "relu"
    # Keep at most this many weights of a text, the heaviest ones; None keeps all.
    most: int | None = None


class TextSide(Frozen):
    """How a late-interaction model reads the texts of one side."""

    # Tokens at which a text is cut; None: at the longest sequence of the profile.
    maximum: int | None = Field(default=None, ge=1, le=_LARGEST_SIZE)
    # A shorter text is filled up to so many tokens with the expansion token.
    width: int = Field(default=0, ge=0, le=MOST_EXPANDED)


class TextSides(Frozen):
    """Queries and documents of a late-interaction model. Texts with another prompt than `query` are documents."""

    query: TextSide = TextSide()
    document: TextSide = TextSide()
    # The token that queries are filled up with.
    expansion_id: int = 0


class MultiVector(Frozen):
    """A late-interaction (ColBERT-style) model: what makes its token vectors, and how they are compared."""

    # What follows the encoder, in order: `normalize`, or a folder with a Dense layer.
    modules: tuple[str, ...] = ()
    sides: TextSides = TextSides()
    # Whether other tokens attend to the tokens that a query is filled up with.
    attends: bool = False
    # Tokens by side whose vectors are no part of the answer, such as punctuation.
    skipped_ids: dict[str, tuple[int, ...]] = {}
    # Prompts of PyLate that stand in the vocabulary as one token.
    markers: tuple[str, ...] = ()
    # How a query and a document are compared: the best products of the query's tokens are added up, or their mean is.
    similarity: Literal["maxsim", "meanmaxsim"] = "maxsim"

    @property
    def hidden_id(self) -> int | None:
        """The token that queries are filled up with, if others do not attend to it."""
        return self.sides.expansion_id if self.sides.query.width and not self.attends else None


class ModelRef(Frozen):
    """A trained model that was found and identified. None of its weights are loaded yet."""

    # What the user typed: a folder, `package:NAME`, a hub id, or the function of a module.
    source: str
    # The folder with the encoder's config and weights, inside `root`.
    directory: str
    # Hash of every file that changes the numbers or the tokens.
    digest: str
    family: str
    task: str
    # The name under which it is deployed, unless the user gives another.
    name: str
    # Tokens that the model can read.
    positions: int
    layers: int
    # Width of a token vector.
    hidden: int
    heads: int
    # Only for embedding.
    pooling: Pooling | None = None
    # Names of the logits, in order.
    labels: tuple[str, ...] = ()
    # Tokens at which the model's own library cuts a text, if its files say it.
    default_sequence: int | None = None
    # What sentence-transformers puts before a text, by name.
    prompts: dict[str, str] = {}
    # The name of the prompt that it uses if none is asked for.
    default_prompt: str = ""
    # The folder that the user named.
    root: str = ""
    # Names of the model's inputs, in order.
    inputs: tuple[str, ...] = ()
    vocabulary: int = 0
    # Length of an embedding.
    width: int = 0
    # What turns logits into scores.
    activation: Activation = "softmax"
    # Only for sparse-embedding.
    sparse: Sparse | None = None
    # Further outputs of feature-extraction: `hidden_states`, `attentions`.
    extras: tuple[str, ...] = ()
    # Tokens that fill-mask gives for each mask.
    top_k: int = 0
    # The token that fill-mask fills; None for other tasks, and for references made before label words.
    mask_id: int | None = Field(default=None, exclude_if=lambda value: value is None)
    # `package.module:function` that builds the model; it is called with `directory` if there is one.
    module: str | None = None
    # A generator that reranks: the token whose logit is the score, and the one whose logit is taken from it, if any.
    score_ids: tuple[int, ...] = Field(default=(), exclude_if=lambda value: not value)
    # Only for hybrid-embedding: the length of a token's vector.
    token_width: int = Field(default=0, exclude_if=lambda value: not value)
    # Only for feature-extraction with a late-interaction model.
    multi_vector: MultiVector | None = Field(default=None, exclude_if=lambda value: value is None)


class ChatTemplate(Frozen):
    """A chat template, rendered and cut at the texts of its messages."""

    # What stands before the first text, between two texts and behind the last one.
    around: tuple[str, ...]
    # The role of the text in each gap.
    roles: tuple[str, ...]
    # Whether white space around a text is removed.
    strip: bool = False


class ChatTemplates(Frozen):
    """How sentence-transformers puts texts into the chat template of a model."""

    # By the roles of the messages, such as "system,query,document".
    templates: dict[str, ChatTemplate]
    # Whether a text that was cut ends as the template does.
    restore_end: bool = True


class TokenizerSpec(Frozen):
    """What is needed beyond `tokenizer.json` to build an engine's inputs."""

    # Token id and segment id of padding.
    pad_id: int
    pad_type_id: int = 0
    pad_side: Literal["right", "left"] = "right"
    # The end of a too long text that is cut off.
    cut_side: Literal["right", "left"] = "right"
    inputs: tuple[str, ...]
    # Words to put before a text, by name, and the name of those that are put there unasked ("" for none).
    prompts: dict[str, str] = {}
    default_prompt: str = ""
    # Tokens for which the model has no vector, such as the image token of EmbeddingGemma: texts with them are refused.
    refused_ids: tuple[int, ...] = ()
    # The chat template that every text is put into.
    chat: ChatTemplates | None = Field(default=None, exclude_if=lambda value: value is None)
    # Set if queries and documents are read differently.
    sides: TextSides | None = Field(default=None, exclude_if=lambda value: value is None)
