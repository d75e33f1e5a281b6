"""The Triton models of an artifact: the model that callers ask, the engine as plain tensors, and what joins them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from trimaran.core.artifact import Artifact
from trimaran.core.choices import Rows
from trimaran.core.errors import UsageError
from trimaran.core.instructions import INTEGER, products_by
from trimaran.core.late_interaction import SIMILARITY
from trimaran.core.model_config import (
    ENSEMBLE,
    ON_DEMAND,
    Accelerator,
    DataType,
    DynamicBatching,
    EnsembleStep,
    InstanceGroup,
    ModelConfig,
    QueuePolicy,
    TensorConfig,
)
from trimaran.core.serving_json import Serving
from trimaran.core.small_vectors import RANGES
from trimaran.core.spec import ShapeProfile, profile_shapes
from trimaran.core.tasks import TASKS, task
from trimaran.model_repository.tensors import tensor_from_spec, without_batch
from trimaran.model_repository.warmups import tensor_warmups, text_warmups
from trimaran.runtime.answers import Reader
from trimaran.runtime.label_words import LABEL_WORDS, MASK_SCORES
from trimaran.runtime.wire import COUNTS, FIRST, OPTIONS, PROMPT, VERSION

# What the tokenizing stage imports of `trimaran/runtime`.
TOKENIZER_FILES = ("text.py", "prompts.py", "cutting.py", "chat.py", "sides.py")
# What the text stage imports of `trimaran/runtime`, beside its engine.
TEXT_FILES = (
    *TOKENIZER_FILES, "answers.py", "label_words.py", "wire.py", "pulse.py", "shadow.py", "tasks/__init__.py",
    *(f"tasks/{name.replace('-', '_')}.py" for name in TASKS),
)  # fmt: skip
# What an engine in the text stage's own process imports, where that is more than one file of its name.
_ON_GPU = ("tensorrt_engine.py", "cuda_driver.py")
ENGINE_FILES = {
    "tensorrt": _ON_GPU,
    "tensorrt_rtx": _ON_GPU,
    "onnxruntime_cuda": ("onnxruntime_gpu_engine.py",),
}
_SERVED_ENTRY = {"onnx": "model.onnx", "openvino": "model.xml", "tensorrt": "model.plan"}

# An idle engine starts at once. While it works the queue fills by itself, so a delay would only add latency.
_QUEUE_DELAY_US = 0
# Two instances, although each uses every thread. Triton 24.10 does not wake the batcher of a bounded queue for a
# request that arrives while the only instance is about to finish: that request waits half a second. The second is a
# spare, because instances that take turns push each other's copy of the weights out of the CPU cache.
TEXT_STAGES = InstanceGroup(count=1, spares=1)
# Of a text stage that calls an engine on a GPU: one process tokenises too slowly to keep a GPU busy.
_GPU_TEXT_STAGES = InstanceGroup(count=4)
# A request beyond the queue, or older than the timeout, is refused rather than answered too late.
_QUEUE_TIMEOUT_US = 10_000_000
_QUEUED_BATCHES = 8
_SMALLEST_QUEUE = 64


@dataclass(frozen=True)
class EngineModel:
    """How Triton runs an engine of ours as a model."""

    # Triton's backend, and the file that it looks for. Without one, only the text stage can run it.
    backend: str
    file: str
    # Whether it runs in a C++ backend on a GPU instead of inside the text stage.
    separate: bool = False
    # Parameters of the configuration; `{threads}` is filled in.
    parameters: Mapping[str, str] = field(default_factory=dict)
    # Whether ONNX Runtime hands its graph to TensorRT.
    accelerated: bool = False


_COUNTS = tuple(TensorConfig(name=name, data_type="TYPE_INT32", dims=(1,)) for name in COUNTS)
# A volume of the container that lasts: ONNX Runtime keeps what TensorRT built there.
PLANS_FOLDER = "/plans"
ENGINES: dict[str, EngineModel] = {
    "onnxruntime": EngineModel(
        "onnxruntime", "model.onnx", parameters={"intra_op_thread_count": "{threads}", "inter_op_thread_count": "1"}
    ),
    "openvino": EngineModel(
        "openvino", "model.xml", parameters={"INFERENCE_NUM_THREADS": "{threads}", "NUM_STREAMS": "1"}
    ),
    "tensorrt": EngineModel("tensorrt", "model.plan", separate=True),
    "tensorrt_rtx": EngineModel("", "model.plan", separate=True),
    "onnxruntime_cuda": EngineModel("onnxruntime", "model.onnx", separate=True),
    "onnxruntime_tensorrt": EngineModel("onnxruntime", "model.onnx", separate=True, accelerated=True),
}
# Names that the official container's backends look for when the configuration gives none.
DEFAULT_FILE = {row.backend: row.file for row in ENGINES.values() if row.backend}


def engine_model(artifact: Artifact) -> EngineModel:
    if artifact.backend not in ENGINES:
        raise UsageError(
            f"Triton serves artifacts for {', '.join(ENGINES)}; this one is for {artifact.backend}.",
            hint="`trimaran quantize` makes one that can be served.",
        )
    return ENGINES[artifact.backend]


def serving_of(artifact: Artifact, *, rows: Rows, threads: int) -> Serving:
    return Serving(
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
        proven_on=(products_by(artifact.execution_environment),) if _on_cpu(artifact) else (),
    )


def _on_cpu(artifact: Artifact) -> bool:
    """Whether INT8 products are the CPU's own, which differ between instruction sets."""
    return artifact.precision in INTEGER and not engine_model(artifact).separate


def text_interface(artifact: Artifact) -> tuple[tuple[TensorConfig, ...], tuple[TensorConfig, ...]]:
    """What callers of the model send and get."""
    wire = task(artifact.task).served
    inputs = [
        TensorConfig(
            name=item.name,
            data_type="TYPE_STRING",
            dims=(-1 if item.many else 1,),
            optional=item.optional,
            ragged=item.many,
        )
        for item in wire.inputs
    ]
    # A model without prompts has none to choose from.
    if artifact.tokenizer.prompts or set(wire.options) - {PROMPT}:
        inputs.append(TensorConfig(name=OPTIONS, data_type="TYPE_STRING", dims=(1,), optional=True))
    engine = {spec.name: without_batch(spec) for spec in artifact.signature.outputs}
    engine[FIRST] = without_batch(artifact.signature.outputs[0])
    outputs = []
    for output in wire.outputs:
        dims = engine.get(output.dims) if isinstance(output.dims, str) else output.dims
        if dims is not None:
            outputs.append(TensorConfig(name=output.name, data_type=cast(DataType, output.data_type), dims=dims))
    return tuple(inputs), (*outputs, *_COUNTS)


def text_stage(name: str, artifact: Artifact, *, calls: bool = False) -> ModelConfig:
    """Tokenises, runs the engine and post-processes. The engine runs in its process; with `calls` it is another model,
    which has its own warm-up.
    """
    inputs, outputs = text_interface(artifact)
    return ModelConfig(
        name=name,
        backend="python",
        max_batch_size=artifact.profile.batch.maximum,
        inputs=inputs,
        outputs=outputs,
        instance_group=_GPU_TEXT_STAGES if calls and engine_model(artifact).separate else TEXT_STAGES,
        dynamic_batching=_batching(artifact.profile),
        warmups=() if calls else text_warmups(artifact),
        parameters=text_parameters(artifact),
    )


def text_parameters(artifact: Artifact) -> dict[str, str]:
    """What a caller can read of a model before calling it."""
    parameters = {"task": artifact.task, "wire": VERSION, "artifact": artifact.digest}
    if artifact.tokenizer.prompts:
        parameters["prompts"] = json.dumps(list(artifact.tokenizer.prompts), ensure_ascii=False)
    if ranges := artifact.details.get(RANGES):
        parameters[RANGES] = ranges
    if similarity := artifact.details.get("answers", {}).get(SIMILARITY):
        parameters[SIMILARITY] = similarity
    if artifact.task == "fill-mask":
        reader = Reader(str(artifact.directory / "tokenizer.json"))
        parameters["mask_token"] = reader.token(artifact.details["answers"]["mask_id"])
        if any(spec.name == MASK_SCORES for spec in artifact.signature.outputs):
            parameters[LABEL_WORDS] = "true"
    return parameters


def tensor_stage(name: str, artifact: Artifact, *, rows: Rows, threads: int, on_demand: bool = True) -> ModelConfig:
    """The engine by itself, for callers that tokenise. The backend has the official container's name."""
    row = engine_model(artifact)
    parameters = {key: value.format(threads=threads) for key, value in row.parameters.items()}
    if rows != "padded":
        parameters["batching"] = (
            f"Off: this engine gives the same answer alone and in a batch only with rows {rows}, "
            "and Triton's batcher pads requests of different lengths."
        )
    if on_demand:
        parameters["load"] = ON_DEMAND
    entry = served_names(artifact)[artifact.entry]
    return ModelConfig(
        name=tensor_stage_name(name, row.backend),
        backend=row.backend,
        max_batch_size=artifact.profile.batch.maximum,
        inputs=tuple(tensor_from_spec(spec) for spec in artifact.signature.inputs),
        outputs=tuple(tensor_from_spec(spec) for spec in artifact.signature.outputs),
        default_model_filename="" if entry == row.file else entry,
        instance_group=_gpu_instance(artifact) if row.separate else InstanceGroup(),
        dynamic_batching=_batching(artifact.profile, preferred=row.separate) if rows == "padded" else None,
        warmups=tensor_warmups(artifact, corners=row.separate),
        accelerators=(_tensorrt_accelerator(artifact),) if row.accelerated else (),
        parameters={**parameters, "artifact": artifact.digest},
    )


def _gpu_instance(artifact: Artifact) -> InstanceGroup:
    """One instance on one GPU: without `gpus` Triton takes every visible one, and one unlike card fails the model.

    A plan with dynamic shapes is loaded once for each instance, so a second one would need its memory again.
    """
    profiles = artifact.details.get("engine", {}).get("profiles", [])
    return InstanceGroup(
        kind="KIND_GPU",
        gpus=(int(artifact.engine_options.get("device", 0)),),
        profiles=tuple(map(str, range(len(profiles)))) if len(profiles) > 1 else (),
    )


def _tensorrt_accelerator(artifact: Artifact) -> Accelerator:
    """ONNX Runtime names a cached engine by its tensors, not by its weights: so each artifact has its own folder.

    With the shapes of every input given, TensorRT builds once, when the model is loaded.
    """
    folder = f"{PLANS_FOLDER}/{artifact.digest[:16]}"
    shapes = profile_shapes(artifact.signature, artifact.profile)
    ranges = {
        f"trt_profile_{which}_shapes": ",".join(
            f"{name}:{'x'.join(map(str, sizes[index]))}" for name, sizes in shapes.items()
        )
        for index, which in enumerate(("min", "opt", "max"))
    }
    caches = {
        "trt_engine_cache_enable": "true",
        "trt_engine_cache_path": folder,
        "trt_timing_cache_enable": "true",
        "trt_timing_cache_path": folder,
    }
    return Accelerator(name="tensorrt", parameters={**caches, **ranges})


def tokenizer_stage(name: str, artifact: Artifact) -> ModelConfig:
    """Text to the engine's inputs. Lengths are rounded up to a few sizes, so that requests share batches."""
    return ModelConfig(
        name=tokenizer_stage_name(name),
        backend="python",
        max_batch_size=artifact.profile.batch.maximum,
        inputs=text_interface(artifact)[0],
        outputs=(*(tensor_from_spec(spec) for spec in artifact.signature.inputs), *_COUNTS),
        warmups=text_warmups(artifact),
        parameters={"artifact": artifact.digest, "load": ON_DEMAND},
    )


def ensemble(name: str, artifact: Artifact) -> ModelConfig:
    """Tokenizer and engine as one model: only for a task whose answer the graph finishes."""
    inputs, outputs = text_interface(artifact)
    engine = artifact.signature
    return ModelConfig(
        name=name,
        platform=ENSEMBLE,
        max_batch_size=artifact.profile.batch.maximum,
        inputs=inputs,
        outputs=outputs,
        instance_group=None,
        steps=(
            EnsembleStep(
                model=tokenizer_stage_name(name),
                inputs={item.name: item.name for item in inputs},
                outputs={name: name for name in (*engine.input_names, *COUNTS)},
            ),
            EnsembleStep(
                model=tensor_stage_name(name, engine_model(artifact).backend),
                inputs={spec.name: spec.name for spec in engine.inputs},
                outputs={engine.outputs[0].name: outputs[0].name},
            ),
        ),
        parameters=text_parameters(artifact),
    )


def finished_in_graph(artifact: Artifact, rows: Rows) -> bool:
    """Whether tokenizer and engine alone give the answer, for rows that may be padded together.

    The tokenizer stage reads no options, so a model whose callers choose a prompt needs the text stage.
    """
    spec = artifact.signature.outputs[0]
    chosen = bool(artifact.tokenizer.prompts)
    return artifact.task == "embedding" and spec.dtype == "float32" and rows == "padded" and not chosen


def tensor_stage_name(name: str, backend: str) -> str:
    return f"{name}_{backend}"


def tokenizer_stage_name(name: str) -> str:
    return f"{name}_tokenizer"


def served_names(artifact: Artifact) -> dict[str, str]:
    """The name in a version folder of each file of the artifact. Weights beside an IR follow its new stem."""
    entry = _SERVED_ENTRY[artifact.format]
    renamed = {artifact.entry: entry}
    if artifact.format == "openvino":
        renamed[artifact.entry.removesuffix(".xml") + ".bin"] = "model.bin"
    return {file.name: renamed.get(file.name, file.name) for file in artifact.files}


def _batching(profile: ShapeProfile, *, preferred: bool = False) -> DynamicBatching:
    sizes = {profile.batch.typical, profile.batch.maximum} - {1} if preferred else set()
    return DynamicBatching(
        preferred_batch_sizes=tuple(sorted(sizes)),
        max_queue_delay_us=_QUEUE_DELAY_US,
        priority_levels=2,
        default_priority=2,
        queue=QueuePolicy(
            max_queue_size=max(_SMALLEST_QUEUE, _QUEUED_BATCHES * profile.batch.maximum),
            timeout_us=_QUEUE_TIMEOUT_US,
            caller_may_shorten=True,
        ),
    )
