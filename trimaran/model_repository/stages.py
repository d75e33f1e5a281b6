"""Which Triton models stand for an artifact: the text stage to call, and the plain tensors beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast

from pydantic import Field

from trimaran.artifact import Artifact
from trimaran.model_repository.model_config import (
    DataType,
    DynamicBatching,
    ModelConfig,
    QueuePolicy,
    Tensor,
    Warmup,
    WarmupInput,
)
from trimaran.runtime.answers import Reader
from trimaran.runtime.wire import FIRST, OPTIONS, VERSION, WIRES
from trimaran.spec import Frozen, Rows, ShapeProfile, TensorSpec, TokenizerSpec

SERVING_FILE = "serving.json"
# What the text stage imports of `trimaran/runtime`, beside its engine.
TEXT_FILES = ("text.py", "answers.py", "entities.py", "spans.py", "wire.py")

# Names that the official container's backends look for when the configuration gives none.
DEFAULT_FILE = {"onnxruntime": "model.onnx", "openvino": "model.xml"}
_SERVED_ENTRY = {"onnx": "model.onnx", "openvino": "model.xml"}
_THREADS: Mapping[str, Mapping[str, str]] = {
    "onnxruntime": {"intra_op_thread_count": "{threads}", "inter_op_thread_count": "1"},
    "openvino": {"INFERENCE_NUM_THREADS": "{threads}", "NUM_STREAMS": "1"},
}
_DATA_TYPES: Mapping[str, DataType] = {
    "int64": "TYPE_INT64",
    "int32": "TYPE_INT32",
    "float32": "TYPE_FP32",
    "float16": "TYPE_FP16",
    "bfloat16": "TYPE_BF16",
}

# An idle engine starts at once: while it works the queue fills by itself, so waiting for company would only add
# latency. Requests beyond the queue, or older than the timeout, are refused rather than answered too late.
_QUEUE_DELAY_US = 0
_QUEUE_TIMEOUT_US = 10_000_000
_QUEUED_BATCHES = 8
_SMALLEST_QUEUE = 64
# A warm-up must not be refused: Triton 2.51 dies of that without a word, and a long question leaves no room.
_BRIEF_WORDS = 3


class Serving(Frozen):
    """`serving.json`: what a stage must know at run time, as it was proven."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    task: str
    backend: str
    entry: str
    rows: Rows
    threads: int
    labels: tuple[str, ...]
    facts: dict[str, Any]
    tokenizer: TokenizerSpec
    profile: ShapeProfile
    engine_options: dict[str, Any]
    execution_environment: dict[str, str]

    @classmethod
    def of(cls, artifact: Artifact, *, rows: Rows, threads: int) -> Serving:
        return cls(
            task=artifact.task,
            backend=artifact.backend,
            entry=served_names(artifact)[artifact.entry],
            rows=rows,
            threads=threads,
            labels=artifact.labels,
            facts=artifact.details.get("answers", {}),
            tokenizer=artifact.tokenizer,
            profile=artifact.profile,
            engine_options=artifact.engine_options,
            execution_environment=artifact.execution_environment,
        )

    def to_json(self) -> str:
        return self.model_dump_json(by_alias=True, indent=2) + "\n"


def text_interface(artifact: Artifact) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """What callers of the text stage send and get."""
    wire = WIRES[artifact.task]
    inputs = [
        Tensor(
            name=field.name,
            data_type="TYPE_STRING",
            dims=(-1 if field.many else 1,),
            optional=field.optional,
            ragged=field.many,
        )
        for field in wire.inputs
    ]
    if wire.options:
        inputs.append(Tensor(name=OPTIONS, data_type="TYPE_STRING", dims=(1,), optional=True))
    engine = {spec.name: _without_batch(spec) for spec in artifact.signature.outputs}
    engine[FIRST] = _without_batch(artifact.signature.outputs[0])
    outputs = []
    for output in wire.outputs:
        dims = engine.get(output.dims) if isinstance(output.dims, str) else output.dims
        if dims is not None:
            outputs.append(Tensor(name=output.name, data_type=cast(DataType, output.data_type), dims=dims))
    return tuple(inputs), tuple(outputs)


def text_stage(name: str, artifact: Artifact) -> ModelConfig:
    """Tokenises, runs the engine in process and post-processes: one hop, no padding waste."""
    inputs, outputs = text_interface(artifact)
    return ModelConfig(
        name=name,
        backend="python",
        max_batch_size=artifact.profile.batch.maximum,
        inputs=inputs,
        outputs=outputs,
        dynamic_batching=_batching(artifact.profile),
        warmups=tuple(
            Warmup(name=f"{words} words", inputs=_warmup_texts(artifact, words))
            for words in _warmup_lengths(artifact.profile)
        ),
        parameters=text_parameters(artifact),
    )


def text_parameters(artifact: Artifact) -> dict[str, str]:
    """What a caller can read of a model before calling it."""
    found = {"task": artifact.task, "wire": VERSION, "artifact": artifact.digest}
    if artifact.task == "fill-mask":
        reader = Reader(str(artifact.directory / "tokenizer.json"))
        found["mask_token"] = reader.token(artifact.details["answers"]["mask_id"])
    return found


def tensor_stage(name: str, artifact: Artifact, *, rows: Rows, threads: int) -> ModelConfig:
    """The engine by itself, for callers who tokenise; `backend` as the official container knows it."""
    parameters = {key: value.format(threads=threads) for key, value in _THREADS[artifact.backend].items()}
    if rows != "padded":
        parameters["batching"] = (
            f"Off: this engine answers the same alone and in a batch only with rows {rows}, "
            "which a batcher of unlike requests cannot promise."
        )
    entry = served_names(artifact)[artifact.entry]
    return ModelConfig(
        name=tensor_stage_name(name, artifact.backend),
        backend=artifact.backend,
        max_batch_size=artifact.profile.batch.maximum,
        inputs=tuple(tensor_from_spec(spec) for spec in artifact.signature.inputs),
        outputs=tuple(tensor_from_spec(spec) for spec in artifact.signature.outputs),
        default_model_filename="" if entry == DEFAULT_FILE[artifact.backend] else entry,
        dynamic_batching=_batching(artifact.profile) if rows == "padded" else None,
        warmups=tuple(
            Warmup(
                name=f"{tokens} tokens",
                inputs=tuple(_warmup_tokens(spec, tokens) for spec in artifact.signature.inputs),
            )
            for tokens in _warmup_lengths(artifact.profile)
        ),
        parameters={**parameters, "artifact": artifact.digest, "load": "on demand"},
    )


def tensor_stage_name(name: str, backend: str) -> str:
    return f"{name}_{backend}"


def tensor_from_spec(spec: TensorSpec) -> Tensor:
    return Tensor(name=spec.name, data_type=_DATA_TYPES[spec.dtype], dims=_without_batch(spec))


def warmup_files(artifact: Artifact) -> dict[str, bytes]:
    """File name to content, for both stages: texts with Triton's length prefix, and masks of ones."""
    files: dict[str, bytes] = {}
    for length in (_BRIEF_WORDS, *_warmup_lengths(artifact.profile)):
        text = ("the " * length).strip().encode()
        files[f"{length}-words"] = len(text).to_bytes(4, "little") + text
        files[f"{length}-words-twice"] = 2 * files[f"{length}-words"]
        files[f"{length}-ones"] = (1).to_bytes(8, "little") * length
    return files


def served_names(artifact: Artifact) -> dict[str, str]:
    """Each file of the artifact to its name in a version folder; weights beside an IR follow its new stem."""
    entry = _SERVED_ENTRY[artifact.format]
    renamed = {artifact.entry: entry}
    if artifact.format == "openvino":
        renamed[artifact.entry.removesuffix(".xml") + ".bin"] = "model.bin"
    return {file.name: renamed.get(file.name, file.name) for file in artifact.files}


def _without_batch(spec: TensorSpec) -> tuple[int, ...]:
    return tuple(dim if isinstance(dim, int) else -1 for dim in spec.dims[1:])


def _batching(profile: ShapeProfile) -> DynamicBatching:
    return DynamicBatching(
        max_queue_delay_us=_QUEUE_DELAY_US,
        priority_levels=2,
        default_priority=2,
        queue=QueuePolicy(
            max_queue_size=max(_SMALLEST_QUEUE, _QUEUED_BATCHES * profile.batch.maximum),
            timeout_us=_QUEUE_TIMEOUT_US,
            caller_may_shorten=True,
        ),
    )


def _warmup_lengths(profile: ShapeProfile) -> tuple[int, ...]:
    return tuple(dict.fromkeys((profile.clamp_sequence(8), profile.sequence.typical)))


def _warmup_texts(artifact: Artifact, words: int) -> tuple[WarmupInput, ...]:
    found = []
    for field in WIRES[artifact.task].inputs:
        if not field.optional:
            size = f"{_BRIEF_WORDS if field.brief else words}-words"
            file, dims = (f"{size}-twice", (2,)) if field.many else (size, (1,))
            found.append(WarmupInput(name=field.name, data_type="TYPE_STRING", dims=dims, file=file))
    return tuple(found)


def _warmup_tokens(spec: TensorSpec, tokens: int) -> WarmupInput:
    dims = tuple(tokens if dim == -1 else dim for dim in _without_batch(spec))
    # Zeros are a token of every vocabulary, but an all-zero mask attends to nothing.
    file = f"{tokens}-ones" if spec.name == "attention_mask" else None
    return WarmupInput(name=spec.name, data_type=_DATA_TYPES[spec.dtype], dims=dims, file=file)
