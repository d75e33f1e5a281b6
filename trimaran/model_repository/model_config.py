"""A model's Triton configuration as facts: the fields of Triton's ModelConfig that trimaran uses, and no other."""

from __future__ import annotations

from typing import Literal

from pydantic import field_validator, model_validator

from trimaran.core.errors import UsageError
from trimaran.core.spec import Frozen

DataType = Literal[
    "TYPE_BOOL", "TYPE_UINT8", "TYPE_UINT16", "TYPE_UINT32", "TYPE_UINT64", "TYPE_INT8", "TYPE_INT16", "TYPE_INT32",
    "TYPE_INT64", "TYPE_FP16", "TYPE_FP32", "TYPE_FP64", "TYPE_STRING", "TYPE_BF16",
]  # fmt: skip
Kind = Literal["KIND_AUTO", "KIND_GPU", "KIND_CPU", "KIND_MODEL"]
ENSEMBLE = "ensemble"


class Tensor(Frozen):
    """Dims without the batch axis; -1 is any size. `ragged` lets requests of unlike sizes share a batch."""

    name: str
    data_type: DataType
    dims: tuple[int, ...]
    optional: bool = False
    ragged: bool = False


class QueuePolicy(Frozen):
    """`caller_may_shorten` lets a request ask for less patience than `timeout_us`, never for more."""

    max_queue_size: int
    timeout_us: int
    timeout_action: Literal["REJECT", "DELAY"] = "REJECT"
    caller_may_shorten: bool = False


class DynamicBatching(Frozen):
    """Priority 1 comes first; each level has a queue of its own, all with the same policy."""

    preferred_batch_sizes: tuple[int, ...] = ()
    max_queue_delay_us: int = 0
    queue: QueuePolicy | None = None
    priority_levels: int = 0
    default_priority: int = 0


class InstanceGroup(Frozen):
    """`spares` are instances that work only while the others are busy, where the server limits rates."""

    count: int = 1
    kind: Kind = "KIND_CPU"
    gpus: tuple[int, ...] = ()
    spares: int = 0


class WarmupInput(Frozen):
    """One input of a warm-up request: the bytes of `file` in the model's `warmup` folder, or zeros."""

    name: str
    data_type: DataType
    dims: tuple[int, ...]
    file: str | None = None


class Warmup(Frozen):
    name: str
    batch_size: int = 1
    count: int = 1
    inputs: tuple[WarmupInput, ...]

    @field_validator("inputs")
    @classmethod
    def _by_name(cls, inputs: tuple[WarmupInput, ...]) -> tuple[WarmupInput, ...]:
        """In the protobuf they are a map, which keeps no order."""
        return tuple(sorted(inputs, key=lambda item: item.name))


class Accelerator(Frozen):
    """What onnxruntime hands its graph to on a GPU, such as `tensorrt`."""

    name: str
    parameters: dict[str, str] = {}


class Step(Frozen):
    """One model of an ensemble. Maps go from the model's own tensor to the ensemble's."""

    model: str
    version: int = -1
    inputs: dict[str, str]
    outputs: dict[str, str]


class ModelConfig(Frozen):
    """Of the versions in the folder, `served_versions` are served, or when none is named the `latest_versions`."""

    name: str
    backend: str = ""
    platform: str = ""
    max_batch_size: int
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    default_model_filename: str = ""
    instance_group: InstanceGroup | None = InstanceGroup()
    dynamic_batching: DynamicBatching | None = None
    warmups: tuple[Warmup, ...] = ()
    latest_versions: int = 1
    served_versions: tuple[int, ...] = ()
    response_cache: bool = False
    accelerators: tuple[Accelerator, ...] = ()
    steps: tuple[Step, ...] = ()
    parameters: dict[str, str] = {}

    @model_validator(mode="after")
    def _one_choice(self) -> ModelConfig:
        if self.served_versions and self.latest_versions != 1:
            raise UsageError("A configuration names the versions that it serves, or how many of the latest; not both.")
        if self.steps and self.dynamic_batching:
            raise UsageError("An ensemble has steps, and the models of its steps batch; it does not itself.")
        return self

    def answers_callers_of(self, earlier: ModelConfig) -> bool:
        """Whether a caller of an earlier version can call this one: nothing else changes but that it may take more
        optional inputs.
        """
        added = [tensor for tensor in self.inputs if tensor not in earlier.inputs]
        kept = tuple(tensor for tensor in self.inputs if tensor not in added)
        return (kept, self.outputs) == (earlier.inputs, earlier.outputs) and all(tensor.optional for tensor in added)

    @property
    def ensemble(self) -> bool:
        return self.platform == ENSEMBLE

    def serves(self, versions: tuple[int, ...]) -> tuple[int, ...]:
        """Which of these versions are served."""
        if self.served_versions:
            return tuple(version for version in versions if version in self.served_versions)
        return versions[-self.latest_versions :]
