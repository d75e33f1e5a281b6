"""Compares a live endpoint with the golden bundles of a repository."""

from __future__ import annotations

from pathlib import Path

from trimaran.core.errors import UsageError
from trimaran.core.repository import models_in
from trimaran.judging.golden import GOLDEN_FILE, Golden, read_golden
from trimaran.serving.client.synchronous import Client
from trimaran.serving.triton.server import launch
from trimaran.serving.triton.verify import Verification, require_faithful, verify


def serve_and_verify(repository: Path, name: str, golden: Golden) -> Verification:
    """Serves the repository here and verifies a model as a client sees it: the last proof before publishing.

    Raises QualityError for a limit that is broken.
    """
    with launch(repository, drain=False) as server, Client(server.grpc_url) as client:
        verification = verify(client, name, golden)
    require_faithful(verification)
    return verification


def verify_all(client: Client, repository: Path, name: str | None) -> tuple[Verification, ...]:
    """Verifies the named model, or every model that the endpoint serves and the repository has a bundle of."""
    ready = {name} if name is not None else set(client.models())
    bundles = {model: golden_of(repository, model) for model in sorted(ready)}
    verifications = tuple(verify(client, model, golden) for model, golden in bundles.items() if golden is not None)
    if not verifications:
        raise UsageError(
            f"{repository} has no golden bundle for {name or 'any model that is served there'}.",
            hint="`trimaran deploy` makes one; give the repository with -r.",
        )
    return verifications


def golden_of(repository: Path, name: str) -> Golden | None:
    """The bundle of the version that is served, or of the newest version that has one."""
    served = {version for model in models_in(repository) if model.name == name for version in model.served}
    paths = sorted((repository / name).glob(f"*/{GOLDEN_FILE}"), key=lambda path: int(path.parent.name))
    chosen = [path for path in paths if int(path.parent.name) in served] or paths
    return read_golden(chosen[-1]) if chosen else None
