"""Configurations to and from `config.pbtxt`, through Triton's own protobuf."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError as SchemaError

from trimaran.core.errors import RepositoryError, UsageError
from trimaran.core.model_config import (
    Accelerator,
    DynamicBatching,
    InstanceGroup,
    ModelConfig,
    QueuePolicy,
    Step,
    Tensor,
    Warmup,
    WarmupInput,
)

# Triton takes the idle instance with the smallest product of this and its executions; others have 1.
_SPARE = 1_000_000


def pbtxt_from_config(config: ModelConfig) -> str:
    from google.protobuf import text_format

    return str(text_format.MessageToString(_message(config), as_utf8=True))


def config_from_pbtxt(text: str) -> ModelConfig:
    """Reads the fields that trimaran uses; what it does not use is left aside. Raises RepositoryError."""
    from google.protobuf import text_format
    from tritonclient.grpc import model_config_pb2 as pb

    try:
        return _config(pb, text_format.Parse(text, pb.ModelConfig()))
    except (text_format.ParseError, SchemaError, UsageError) as error:
        raise RepositoryError(
            f"The model configuration cannot be read: {' '.join(str(error).split())}.",
            hint="`trimaran repository lay-out` writes a good one.",
        ) from error


def _config(pb: Any, message: Any) -> ModelConfig:
    groups = message.instance_group
    return ModelConfig(
        name=message.name,
        backend=message.backend,
        platform=message.platform,
        max_batch_size=message.max_batch_size,
        inputs=tuple(_tensor(pb, item) for item in message.input),
        outputs=tuple(_tensor(pb, item) for item in message.output),
        default_model_filename=message.default_model_filename,
        instance_group=_instance_group(pb, groups) if groups else None,
        dynamic_batching=_dynamic_batching(pb, message) if message.HasField("dynamic_batching") else None,
        warmups=tuple(_warmup(pb, item) for item in message.model_warmup),
        latest_versions=message.version_policy.latest.num_versions or 1,
        served_versions=tuple(message.version_policy.specific.versions),
        response_cache=message.response_cache.enable,
        accelerators=tuple(
            Accelerator(name=item.name, parameters=dict(item.parameters))
            for item in message.optimization.execution_accelerators.gpu_execution_accelerator
        ),
        steps=tuple(
            Step(
                model=item.model_name,
                version=item.model_version,
                inputs=dict(item.input_map),
                outputs=dict(item.output_map),
            )
            for item in message.ensemble_scheduling.step
        ),
        parameters={key: value.string_value for key, value in sorted(message.parameters.items())},
    )


def _tensor(pb: Any, message: Any) -> Tensor:
    return Tensor(
        name=message.name,
        data_type=pb.DataType.Name(message.data_type),
        dims=tuple(message.dims),
        optional=getattr(message, "optional", False),
        ragged=getattr(message, "allow_ragged_batch", False),
    )


def _instance_group(pb: Any, messages: Any) -> InstanceGroup:
    first = messages[0]
    return InstanceGroup(
        count=first.count,
        kind=pb.ModelInstanceGroup.Kind.Name(first.kind),
        gpus=tuple(first.gpus),
        spares=sum(item.count for item in messages[1:]),
    )


def _dynamic_batching(pb: Any, message: Any) -> DynamicBatching:
    found = message.dynamic_batching
    policy = found.default_queue_policy
    return DynamicBatching(
        preferred_batch_sizes=tuple(found.preferred_batch_size),
        max_queue_delay_us=found.max_queue_delay_microseconds,
        priority_levels=found.priority_levels,
        default_priority=found.default_priority_level,
        queue=QueuePolicy(
            max_queue_size=policy.max_queue_size,
            timeout_us=policy.default_timeout_microseconds,
            timeout_action=pb.ModelQueuePolicy.TimeoutAction.Name(policy.timeout_action),
            caller_may_shorten=policy.allow_timeout_override,
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


def _message(config: ModelConfig) -> Any:
    from tritonclient.grpc import model_config_pb2 as pb

    message = pb.ModelConfig(
        name=config.name,
        backend=config.backend,
        platform=config.platform,
        max_batch_size=config.max_batch_size,
        default_model_filename=config.default_model_filename,
        input=[
            pb.ModelInput(
                name=item.name,
                data_type=item.data_type,
                dims=item.dims,
                optional=item.optional,
                allow_ragged_batch=item.ragged,
            )
            for item in config.inputs
        ],
        output=[pb.ModelOutput(name=item.name, data_type=item.data_type, dims=item.dims) for item in config.outputs],
        parameters={key: pb.ModelParameter(string_value=value) for key, value in config.parameters.items()},
    )
    if group := config.instance_group:
        first = message.instance_group.add(count=group.count, kind=group.kind, gpus=group.gpus)
        if group.spares:
            first.rate_limiter.priority = 1
            spare = message.instance_group.add(count=group.spares, kind=group.kind, gpus=group.gpus)
            spare.rate_limiter.priority = _SPARE
    if config.served_versions:
        message.version_policy.specific.versions.extend(config.served_versions)
    else:
        message.version_policy.latest.num_versions = config.latest_versions
    if config.response_cache:
        message.response_cache.enable = True
    if config.dynamic_batching is not None:
        message.dynamic_batching.CopyFrom(_batching_message(pb, config.dynamic_batching))
    for accelerator in config.accelerators:
        message.optimization.execution_accelerators.gpu_execution_accelerator.add(
            name=accelerator.name, parameters=accelerator.parameters
        )
    for step in config.steps:
        message.ensemble_scheduling.step.add(
            model_name=step.model, model_version=step.version, input_map=step.inputs, output_map=step.outputs
        )
    for warmup in config.warmups:
        _add_warmup(pb, message, warmup)
    return message


def _batching_message(pb: Any, batching: DynamicBatching) -> Any:
    message = pb.ModelDynamicBatching(
        preferred_batch_size=batching.preferred_batch_sizes,
        max_queue_delay_microseconds=batching.max_queue_delay_us,
        priority_levels=batching.priority_levels,
        default_priority_level=batching.default_priority,
    )
    if queue := batching.queue:
        message.default_queue_policy.CopyFrom(
            pb.ModelQueuePolicy(
                max_queue_size=queue.max_queue_size,
                default_timeout_microseconds=queue.timeout_us,
                timeout_action=queue.timeout_action,
                allow_timeout_override=queue.caller_may_shorten,
            )
        )
    return message


def _add_warmup(pb: Any, message: Any, warmup: Warmup) -> None:
    sample = message.model_warmup.add(name=warmup.name, batch_size=warmup.batch_size, count=warmup.count)
    for item in warmup.inputs:
        entry = sample.inputs[item.name]
        entry.data_type = pb.DataType.Value(item.data_type)
        entry.dims.extend(item.dims)
        if item.file is None:
            entry.zero_data = True
        else:
            entry.input_data_file = item.file
