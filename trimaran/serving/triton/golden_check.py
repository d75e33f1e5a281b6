"""A live endpoint held against the golden bundles of a repository."""

from __future__ import annotations

from pathlib import Path

from trimaran.core.errors import UsageError
from trimaran.judging.golden import GOLDEN_FILE, Golden, read_golden
from trimaran.serving.client import Client
from trimaran.serving.triton.listing import listed_models
from trimaran.serving.triton.verify import Verification, verify


def verify_all(client: Client, repository: Path, name: str | None) -> tuple[Verification, ...]:
    """The named model, or every model that the endpoint serves and of which the repository has a bundle."""
    bundles = {model: golden_of(repository, model) for model in _wanted(client, repository, name)}
    found = tuple(verify(client, model, golden) for model, golden in bundles.items() if golden is not None)
    if not found:
        raise UsageError(
            f"{repository} has no golden bundle for {name or 'any model that is served there'}.",
            hint="`trimaran deploy` makes one; give the repository with -r.",
        )
    return found


def golden_of(repository: Path, name: str) -> Golden | None:
    """The bundle of the version that is served, or of the newest that has one."""
    served = {version for model in listed_models(repository) if model.name == name for version in model.served}
    paths = sorted((repository / name).glob(f"*/{GOLDEN_FILE}"), key=lambda path: int(path.parent.name))
    chosen = [path for path in paths if int(path.parent.name) in served] or paths
    return read_golden(chosen[-1]) if chosen else None


def _wanted(client: Client, repository: Path, name: str | None) -> tuple[str, ...]:
    if name is not None:
        return (name,)
    ready = set(client.models())
    return tuple(model.name for model in listed_models(repository) if model.name in ready)
