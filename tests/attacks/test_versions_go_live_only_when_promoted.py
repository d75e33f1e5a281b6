"""A version that is deployed beside a served one waits for its promotion, also when stubs and servers die."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.homes import home_at
from tests.serving.worlds import eventually
from tests.tiny import tiny_artifact
from trimaran.core.progress import SilentProgress
from trimaran.model_repository.layout import lay_out
from trimaran.model_repository.versions import list_models
from trimaran.pipeline.promote import promote
from trimaran.serving.client import Client
from trimaran.serving.triton import control, daemon, processes
from trimaran.serving.triton.watchdog import WatchdogSettings

pytestmark = [pytest.mark.usefixtures("triton"), pytest.mark.slow]


def test_a_reload_and_another_server_stay_at_the_version_that_was_promoted(tmp_path: Path) -> None:
    repository = tmp_path / "r"
    artifact = tiny_artifact(tmp_path / "s")
    lay_out(artifact, repository=repository, name="m", rows="padded", threads=1)
    with home_at(tmp_path / "home"):
        try:
            first = daemon.serve_detached(repository, watchdog=WatchdogSettings(canary_s=0.2))
            lay_out(artifact, repository=repository, name="m", rows="padded", threads=1)
            assert [(model.versions, model.served) for model in list_models(repository)] == [((1, 2), (1,))] * 2
            processes.kill_stubs(first.pid, "m")
            assert eventually(lambda: [state.reloads for state in daemon.running()] == [1])
            second = daemon.serve_detached(repository)
            for server in (first, second):
                assert control.ready_versions(server.control, "m") == {"1"}
            promote(repository, "m", 2, prove=False, progress=SilentProgress())
            for server in (first, second):
                with Client(f"127.0.0.1:{server.grpc_port}") as client:
                    assert client.versions() == {"m": 2}
        finally:
            daemon.stop()
