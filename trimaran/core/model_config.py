"""A model's Triton configuration as facts: the fields of Triton's ModelConfig that trimaran uses, and no other.

Where Triton names a field differently, the alias is Triton's name. `config_pbtxt` reads and writes by these names.
"""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field, field_validator, model_validator

from trimaran.core.errors import UsageError
from trimaran.core.spec import Frozen

DataType = Literal[
    "TYPE_BOOL", "TYPE_UINT8", "TYPE_UINT16", "TYPE_UINT32", "TYPE_UINT64", "TYPE_INT8", "TYPE_INT16", "TYPE_INT32",
    "TYPE_INT64", "TYPE_FP16", "TYPE_FP32", "TYPE_FP64", "TYPE_STRING", "TYPE_BF16",
]  # fmt: skip
InstanceKind = Literal["KIND_AUTO", "KIND_GPU", "KIND_CPU", "KIND_MODEL"]
ENSEMBLE = "ensemble"
# The value of the parameter `load` that keeps a model out of memory until somebody asks for it.
# The parameter that marks a model which was laid out without a proof, and its value.
PROOF, UNPROVEN = "proof", "unproven"
ON_DEMAND = "on demand"
# The parameter that names a version by the digest of its files: `2:3f6a…`. Servers show it to their callers.
RELEASE = "release"


class _ConfigPart(Frozen):
    """Fields of Triton's that are not declared here are left aside when a configuration is read."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True)


class TensorConfig(_ConfigPart):
    name: str
    data_type: DataType
    # Without the batch axis; -1 is any size.
    dims: tuple[int, ...]
    optional: bool = False
    # Whether requests of different sizes may share a batch.
    ragged: bool = Field(default=False, alias="allow_ragged_batch")


class QueuePolicy(_ConfigPart):
    max_queue_size: int
    timeout_us: int = Field(alias="default_timeout_microseconds")
    timeout_action: Literal["REJECT", "DELAY"] = "REJECT"
    # Whether a request may ask for a shorter timeout than `timeout_us`; it may never ask for a longer one.
    caller_may_shorten: bool = Field(default=False, alias="allow_timeout_override")


class DynamicBatching(_ConfigPart):
    preferred_batch_sizes: tuple[int, ...] = Field(default=(), alias="preferred_batch_size")
    max_queue_delay_us: int = Field(default=0, alias="max_queue_delay_microseconds")
    # Each priority level has a queue of its own with this policy.
    queue: QueuePolicy | None = Field(default=None, alias="default_queue_policy")
    # Level 1 is served first.
    priority_levels: int = 0
    default_priority: int = Field(default=0, alias="default_priority_level")


class InstanceGroup(_ConfigPart):
    count: int = 1
    kind: InstanceKind = "KIND_CPU"
    gpus: tuple[int, ...] = ()
    # Of a TensorRT plan: the optimisation profiles that serve; without them only the first does.
    profiles: tuple[str, ...] = Field(default=(), alias="profile")
    # Further instances, which work only while the others are busy (the server's rate limiter must be on).
    spares: int = 0


class WarmupInput(_ConfigPart):
    name: str
    data_type: DataType
    dims: tuple[int, ...]
    # A file in the model's `warmup` folder that holds the bytes; None sends zeros.
    file: str | None = Field(default=None, alias="input_data_file")


class Warmup(_ConfigPart):
    name: str
    batch_size: int = 1
    count: int = 1
    inputs: tuple[WarmupInput, ...]

    @field_validator("inputs")
    @classmethod
    def _by_name(cls, inputs: tuple[WarmupInput, ...]) -> tuple[WarmupInput, ...]:
        """In the protobuf they are a map, which keeps no order."""
        return tuple(sorted(inputs, key=lambda item: item.name))


class Accelerator(_ConfigPart):
    """What ONNX Runtime hands its graph to on a GPU, such as `tensorrt`."""

    name: str
    parameters: dict[str, str] = {}


class EnsembleStep(_ConfigPart):
    """One model of an ensemble. Maps go from the model's own tensor to the ensemble's."""

    model: str = Field(alias="model_name")
    version: int = Field(default=-1, alias="model_version")
    inputs: dict[str, str] = Field(alias="input_map")
    outputs: dict[str, str] = Field(alias="output_map")


class ModelConfig(_ConfigPart):
    name: str
    backend: str = ""
    platform: str = ""
    max_batch_size: int
    inputs: tuple[TensorConfig, ...] = Field(alias="input")
    outputs: tuple[TensorConfig, ...] = Field(alias="output")
    default_model_filename: str = ""
    instance_group: InstanceGroup | None = InstanceGroup()
    dynamic_batching: DynamicBatching | None = None
    warmups: tuple[Warmup, ...] = Field(default=(), alias="model_warmup")
    # Of the versions in the folder, `served_versions` are served; when none is named, the `latest_versions`.
    latest_versions: int = 1
    served_versions: tuple[int, ...] = ()
    response_cache: bool = False
    accelerators: tuple[Accelerator, ...] = ()
    steps: tuple[EnsembleStep, ...] = ()
    parameters: dict[str, str] = {}

    @model_validator(mode="after")
    def _one_choice(self) -> ModelConfig:
        if self.served_versions and self.latest_versions != 1:
            raise UsageError(
                f"A configuration names the versions that it serves, or how many of the latest; "
                f"found both {list(self.served_versions)} and {self.latest_versions}."
            )
        if self.steps and self.dynamic_batching:
            raise UsageError("An ensemble cannot batch by itself: the models of its steps do. Found both.")
        return self

    def answers_callers_of(self, earlier: ModelConfig) -> bool:
        """Whether callers of an earlier version can call this one: optional inputs and outputs may be added."""
        added = [tensor for tensor in self.inputs if tensor not in earlier.inputs]
        kept = tuple(tensor for tensor in self.inputs if tensor not in added)
        outputs = tuple(tensor for tensor in self.outputs if tensor in earlier.outputs)
        return (kept, outputs) == (earlier.inputs, earlier.outputs) and all(tensor.optional for tensor in added)

    @property
    def ensemble(self) -> bool:
        return self.platform == ENSEMBLE

    @property
    def task(self) -> str:
        """Empty for a model that is not called with text."""
        return self.parameters.get("task", "")

    @property
    def unproven(self) -> bool:
        """Whether it was laid out without a proof. Configurations that were written before do not say it."""
        return self.parameters.get(PROOF) == UNPROVEN

    @property
    def on_demand(self) -> bool:
        return self.parameters.get("load") == ON_DEMAND

    @property
    def on_gpu(self) -> bool:
        return self.backend == "tensorrt" or (
            self.instance_group is not None and self.instance_group.kind == "KIND_GPU"
        )

    def serves(self, versions: tuple[int, ...]) -> tuple[int, ...]:
        """Which of these versions are served."""
        if self.served_versions:
            return tuple(version for version in versions if version in self.served_versions)
        return versions[-self.latest_versions :]
