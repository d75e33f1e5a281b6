"""What a deployment cuts or assumes of how a model reads text, in sentences for the plan and the report."""

from __future__ import annotations

from pathlib import Path

from trimaran.core.config import DeployConfig
from trimaran.core.spec import ModelRef, ShapeProfile
from trimaran.export.adopt import graph_without_weights, onnx_file_of


def assumptions(config: DeployConfig, ref: ModelRef, profile: ShapeProfile) -> tuple[str, ...]:
    """Each sentence ends with the flag that changes it. Empty when everything was read from the model."""
    return tuple(filter(None, (_length(config, ref, profile), _pooling(config, ref), _graph_beside(config))))


def _graph_beside(config: DeployConfig) -> str:
    """A folder of optimum may hold both; the report says which of them counts."""
    path = None if config.module else onnx_file_of(config.model)
    if path is None or graph_without_weights(config.model):
        return ""
    return f"{path.name} in the folder is not read: the trained weights beside it are exported, and are the reference."


def _length(config: DeployConfig, ref: ModelRef, profile: ShapeProfile) -> str:
    longest, limit = profile.sequence.maximum, ref.default_sequence
    if limit is None:
        if config.sequence:
            return ""
        return (
            f"No file of the model says how many tokens it reads: it is deployed for {longest}, and longer texts are "
            "cut; --sequence changes it."
        )
    if longest > limit:
        return (
            f"Texts are read up to {longest} tokens, although the model's own library cuts them at {limit}; "
            "--sequence changes it."
        )
    if longest < limit and config.sequence:
        return (
            f"Texts longer than {longest} tokens are cut, although the model reads up to {limit}; "
            "--sequence changes it."
        )
    if longest < limit:
        return (
            f"The model reads up to {limit} tokens; it is deployed for {longest}, and longer texts are cut; "
            "--sequence changes it."
        )
    return ""


def _pooling(config: DeployConfig, ref: ModelRef) -> str:
    """A sentence-transformers folder says how its vectors are made; a plain one says nothing of it."""
    if ref.pooling is None or (ref.root and (Path(ref.root) / "modules.json").is_file()):
        return ""
    unasked = []
    if config.pooling is None:
        unasked.append((f"{ref.pooling.mode} pooling", "--pooling"))
    if config.normalize is None:
        unasked.append(("vectors of unit length" if ref.pooling.normalize else "vectors as they are", "--no-normalize"))
    if not unasked:
        return ""
    what, flags = (" and ".join(column) for column in zip(*unasked, strict=True))
    verb = "change" if len(unasked) > 1 else "changes"
    return f"The model does not say how its vectors are made: {what} are assumed; {flags} {verb} it."
