"""`config.pbtxt`: model configurations to and from Triton's text form, through Triton's own protobuf."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError as SchemaError

from trimaran.core.errors import RepositoryError, UnavailableError, UsageError, install_hint
from trimaran.core.model_config import InstanceGroup, ModelConfig
from trimaran.core.store import write_atomically

CONFIG_FILE = "config.pbtxt"
# Triton runs the idle instance with the smallest product of this priority and its executions; others have 1.
_SPARE_PRIORITY = 1_000_000
_HINT = "`trimaran repository lay-out` writes a good one."


def read_config(path: Path) -> ModelConfig:
    """Raises RepositoryError when the file is missing or is no configuration."""
    try:
        return config_from_pbtxt(path.read_text(encoding="utf-8"), origin=path)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise RepositoryError(f"{path} cannot be read: {reason}.", hint=_HINT) from error


def write_config(path: Path, config: ModelConfig) -> None:
    write_atomically(path, pbtxt_from_config(config))


def pbtxt_from_config(config: ModelConfig) -> str:
    messages = _messages()
    from google.protobuf import json_format, text_format

    # An output has fewer fields than an input in the protobuf: the missing ones are dropped.
    message = json_format.ParseDict(_fields_from_config(config), messages.ModelConfig(), ignore_unknown_fields=True)
    return str(text_format.MessageToString(message, as_utf8=True))


def config_from_pbtxt(text: str, *, origin: object = "The model configuration") -> ModelConfig:
    """Reads the fields that trimaran uses and ignores the others. Raises RepositoryError, which names the `origin`."""
    messages = _messages()
    from google.protobuf import json_format, text_format

    try:
        fields = json_format.MessageToDict(
            text_format.Parse(text, messages.ModelConfig()),
            preserving_proto_field_name=True,
            always_print_fields_with_no_presence=True,
        )
        return _config_from_fields(fields)
    except (text_format.ParseError, SchemaError, UsageError) as error:
        raise RepositoryError(f"{origin} cannot be read: {' '.join(str(error).split())}.", hint=_HINT) from error


def _messages() -> Any:
    """Triton's protobuf of configurations. Raises UnavailableError with the install command."""
    try:
        from tritonclient.grpc import model_config_pb2
    except ImportError as error:
        raise UnavailableError(
            f"A repository is read by means of Triton's client: {error}.", hint=install_hint("gateway")
        ) from error
    return model_config_pb2


def _fields_from_config(config: ModelConfig) -> dict[str, Any]:
    """Triton's fields by name. What is shaped alike on both sides is taken over, the rest is placed by hand."""
    ours = ("instance_group", "latest_versions", "served_versions", "response_cache", "accelerators", "steps")
    fields = config.model_dump(by_alias=True, exclude_none=True, exclude=set(ours))
    for warmup in fields["model_warmup"]:
        warmup["inputs"] = {item.pop("name"): item for item in warmup["inputs"]}
        for item in warmup["inputs"].values():
            if "input_data_file" not in item:
                item["zero_data"] = True
    fields["parameters"] = {key: {"string_value": value} for key, value in config.parameters.items()}
    if config.instance_group:
        fields["instance_group"] = _groups(config.instance_group)
    if config.served_versions:
        fields["version_policy"] = {"specific": {"versions": config.served_versions}}
    else:
        fields["version_policy"] = {"latest": {"num_versions": config.latest_versions}}
    if config.response_cache:
        fields["response_cache"] = {"enable": True}
    if config.accelerators:
        accelerators = [item.model_dump() for item in config.accelerators]
        fields["optimization"] = {"execution_accelerators": {"gpu_execution_accelerator": accelerators}}
    if config.steps:
        fields["ensemble_scheduling"] = {"step": [step.model_dump(by_alias=True) for step in config.steps]}
    return fields


def _config_from_fields(fields: dict[str, Any]) -> ModelConfig:
    def inner(*path: str) -> Any:
        value: Any = fields
        for name in path:
            value = value.get(name, {})
        return value

    groups = fields["instance_group"]
    return ModelConfig.model_validate(
        {
            **fields,
            "model_warmup": [
                {**warmup, "inputs": [{**item, "name": name} for name, item in warmup["inputs"].items()]}
                for warmup in fields["model_warmup"]
            ],
            "parameters": {key: value.get("string_value", "") for key, value in sorted(fields["parameters"].items())},
            "instance_group": _group(groups) if groups else None,
            "latest_versions": inner("version_policy", "latest", "num_versions") or 1,
            "served_versions": tuple(inner("version_policy", "specific", "versions")),
            "response_cache": inner("response_cache", "enable") or False,
            "accelerators": tuple(inner("optimization", "execution_accelerators", "gpu_execution_accelerator")),
            "steps": tuple(inner("ensemble_scheduling", "step")),
        }
    )


def _groups(group: InstanceGroup) -> list[dict[str, Any]]:
    first = group.model_dump(by_alias=True, exclude={"spares"})
    if not group.spares:
        return [first]
    spare = {**first, "count": group.spares, "rate_limiter": {"priority": _SPARE_PRIORITY}}
    return [{**first, "rate_limiter": {"priority": 1}}, spare]


def _group(groups: list[dict[str, Any]]) -> dict[str, Any]:
    """The first group, with the instances of the others as spares. One group on a GPU makes it a GPU model."""
    kinds = [group["kind"] for group in groups]
    return {
        **groups[0],
        "kind": "KIND_GPU" if "KIND_GPU" in kinds else kinds[0],
        "spares": sum(int(group["count"]) for group in groups[1:]),
    }
