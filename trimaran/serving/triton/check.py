"""The last proof before publishing: serve a repository here, ask it over the wire, hold the answers to the bundle."""

from __future__ import annotations

from pathlib import Path

from trimaran.judging.golden import Golden
from trimaran.serving.client.synchronous import Client
from trimaran.serving.triton.server import launch
from trimaran.serving.triton.verify import Verification, require_faithful, verify


def serve_and_verify(repository: Path, name: str, golden: Golden) -> Verification:
    """The task's metrics and `batch_change`, as seen by a client. Raises QualityError for a limit that broke."""
    with launch(repository, drain=False) as server, Client(server.grpc_url) as client:
        found = verify(client, name, golden)
    require_faithful(found)
    return found
