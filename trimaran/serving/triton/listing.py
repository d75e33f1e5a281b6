"""Which models a repository holds, as the server is told about them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

CONFIG_FILE = "config.pbtxt"
# The value of a model's parameter `load` that keeps it out of memory until somebody asks for it.
ON_DEMAND = "on demand"


class Listed(NamedTuple):
    """`task` is empty for a model that is not called with text; `served` names versions, or none for the newest."""

    name: str
    task: str
    on_demand: bool
    served: tuple[int, ...]


def listed_models(repository: Path) -> tuple[Listed, ...]:
    """By the configurations; one that cannot be read is listed too, so that Triton says what is wrong with it."""
    from google.protobuf import text_format
    from tritonclient.grpc import model_config_pb2 as pb

    found = []
    for path in sorted(repository.glob(f"*/{CONFIG_FILE}")):
        message = pb.ModelConfig()
        try:
            text_format.Parse(path.read_text(encoding="utf-8"), message)
        except (text_format.ParseError, UnicodeDecodeError):
            message = pb.ModelConfig()
        parameters = {key: value.string_value for key, value in message.parameters.items()}
        found.append(
            Listed(
                name=path.parent.name,
                task=parameters.get("task", ""),
                on_demand=parameters.get("load") == ON_DEMAND,
                served=tuple(message.version_policy.specific.versions),
            )
        )
    return tuple(found)
