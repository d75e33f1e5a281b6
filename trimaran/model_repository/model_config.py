"""A model's Triton configuration as facts, to and from `config.pbtxt` through the real protobuf."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ValidationError as SchemaError
from pydantic import field_validator

from trimaran.errors import RepositoryError
from trimaran.spec import Frozen

DataType = Literal[
    "TYPE_BOOL", "TYPE_UINT8", "TYPE_UINT16", "TYPE_UINT32", "TYPE_UINT64", "TYPE_INT8", "TYPE_INT16", "TYPE_INT32",
    "TYPE_INT64", "TYPE_FP16", "TYPE_FP32", "TYPE_FP64", "TYPE_STRING", "TYPE_BF16",
]  # fmt: skip


class Tensor(Frozen):
    """Dims without the batch axis; -1 is any size."""

    name: str
    data_type: DataType
    dims: tuple[int, ...]
    optional: bool = False


class QueuePolicy(Frozen):
    max_queue_size: int
    timeout_us: int
    timeout_action: Literal["REJECT", "DELAY"] = "REJECT"


class DynamicBatching(Frozen):
    preferred_batch_sizes: tuple[int, ...] = ()
    max_queue_delay_us: int = 0
    queue: QueuePolicy | None = None


class InstanceGroup(Frozen):
    count: int = 1
    kind: Literal["KIND_AUTO", "KIND_GPU", "KIND_CPU", "KIND_MODEL"] = "KIND_CPU"


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


class ModelConfig(Frozen):
    """The fields of Triton's ModelConfig that trimaran uses. `latest_versions` is how many versions are served."""

    name: str
    backend: str
    max_batch_size: int
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    default_model_filename: str = ""
    instance_group: InstanceGroup = InstanceGroup()
    dynamic_batching: DynamicBatching | None = None
    warmups: tuple[Warmup, ...] = ()
    latest_versions: int = 1
    response_cache: bool = False
    parameters: dict[str, str] = {}

    @property
    def interface(self) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """What a caller relies on: it stays the same for every version of a name."""
        return self.inputs, self.outputs


def pbtxt_from_config(config: ModelConfig) -> str:
    from google.protobuf import text_format

    return str(text_format.MessageToString(_message(config), as_utf8=True))


def config_from_pbtxt(text: str) -> ModelConfig:
    """Reads the fields that trimaran uses; what it does not use is left aside. Raises RepositoryError."""
    from google.protobuf import text_format
    from tritonclient.grpc import model_config_pb2 as pb

    try:
        return _config(pb, text_format.Parse(text, pb.ModelConfig()))
    except (text_format.ParseError, SchemaError) as error:
        raise RepositoryError(
            f"The model configuration cannot be read: {' '.join(str(error).split())}.",
            hint="`trimaran repository lay-out` writes a good one.",
        ) from error


def _config(pb: Any, message: Any) -> ModelConfig:
    return ModelConfig(
        name=message.name,
        backend=message.backend,
        max_batch_size=message.max_batch_size,
        inputs=tuple(_tensor(pb, item) for item in message.input),
        outputs=tuple(_tensor(pb, item) for item in message.output),
        default_model_filename=message.default_model_filename,
        instance_group=_instance_group(pb, message),
        dynamic_batching=_dynamic_batching(pb, message) if message.HasField("dynamic_batching") else None,
        warmups=tuple(_warmup(pb, item) for item in message.model_warmup),
        latest_versions=message.version_policy.latest.num_versions or 1,
        response_cache=message.response_cache.enable,
        parameters={key: value.string_value for key, value in sorted(message.parameters.items())},
    )


def _message(config: ModelConfig) -> Any:
    from tritonclient.grpc import model_config_pb2 as pb

    message = pb.ModelConfig(
        name=config.name,
        backend=config.backend,
        max_batch_size=config.max_batch_size,
        default_model_filename=config.default_model_filename,
        input=[
            pb.ModelInput(name=item.name, data_type=item.data_type, dims=item.dims, optional=item.optional)
            for item in config.inputs
        ],
        output=[pb.ModelOutput(name=item.name, data_type=item.data_type, dims=item.dims) for item in config.outputs],
        instance_group=[pb.ModelInstanceGroup(count=config.instance_group.count, kind=config.instance_group.kind)],
        parameters={key: pb.ModelParameter(string_value=value) for key, value in config.parameters.items()},
    )
    message.version_policy.latest.num_versions = config.latest_versions
    if config.response_cache:
        message.response_cache.enable = True
    if config.dynamic_batching is not None:
        message.dynamic_batching.CopyFrom(_batching_message(pb, config.dynamic_batching))
    for warmup in config.warmups:
        sample = message.model_warmup.add(name=warmup.name, batch_size=warmup.batch_size, count=warmup.count)
        for item in warmup.inputs:
            entry = sample.inputs[item.name]
            entry.data_type = pb.DataType.Value(item.data_type)
            entry.dims.extend(item.dims)
            if item.file is None:
                entry.zero_data = True
            else:
                entry.input_data_file = item.file
    return message


def _batching_message(pb: Any, batching: DynamicBatching) -> Any:
    message = pb.ModelDynamicBatching(
        preferred_batch_size=batching.preferred_batch_sizes,
        max_queue_delay_microseconds=batching.max_queue_delay_us,
    )
    if queue := batching.queue:
        message.default_queue_policy.CopyFrom(
            pb.ModelQueuePolicy(
                max_queue_size=queue.max_queue_size,
                default_timeout_microseconds=queue.timeout_us,
                timeout_action=queue.timeout_action,
            )
        )
    return message


def _tensor(pb: Any, message: Any) -> Tensor:
    return Tensor(
        name=message.name,
        data_type=pb.DataType.Name(message.data_type),
        dims=tuple(message.dims),
        optional=getattr(message, "optional", False),
    )


def _instance_group(pb: Any, message: Any) -> InstanceGroup:
    if not message.instance_group:
        return InstanceGroup(kind="KIND_AUTO")
    first = message.instance_group[0]
    return InstanceGroup(count=first.count, kind=pb.ModelInstanceGroup.Kind.Name(first.kind))


def _dynamic_batching(pb: Any, message: Any) -> DynamicBatching:
    found = message.dynamic_batching
    policy = found.default_queue_policy
    return DynamicBatching(
        preferred_batch_sizes=tuple(found.preferred_batch_size),
        max_queue_delay_us=found.max_queue_delay_microseconds,
        queue=QueuePolicy(
            max_queue_size=policy.max_queue_size,
            timeout_us=policy.default_timeout_microseconds,
            timeout_action=pb.ModelQueuePolicy.TimeoutAction.Name(policy.timeout_action),
        )
        if found.HasField("default_queue_policy")
        else None,
    )


def _warmup(pb: Any, message: Any) -> Warmup:
    return Warmup(
        name=message.name,
        batch_size=message.batch_size,
        count=message.count,
        inputs=tuple(
            WarmupInput(
                name=name,
                data_type=pb.DataType.Name(entry.data_type),
                dims=tuple(entry.dims),
                file=entry.input_data_file if entry.HasField("input_data_file") else None,
            )
            for name, entry in sorted(message.inputs.items())
        ),
    )
