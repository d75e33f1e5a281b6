"""deploy/compose.yaml by podman-compose. `make containers` runs this."""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import openai
import pytest

from tests.containers.conftest import ROOT, pods
from tests.environments import python_of
from tests.serving.worlds import by_hand, eventually, free_port
from trimaran.serving.gateway.keys import add_key

pytestmark = [pytest.mark.container, pytest.mark.slow]


class Composed:
    """The services of a copy of compose.yaml, in a project of their own."""

    def __init__(self, folder: Path, repository: Path) -> None:
        self.port, self.name = free_port(), f"trimaran{uuid.uuid4().hex[:8]}"
        self._file = folder / "compose.yaml"
        text = (ROOT / "deploy" / "compose.yaml").read_text()
        # The one edit: another port of this machine, as 8080 may be taken.
        assert text.count("127.0.0.1:8080:8080") == 1
        self._file.write_text(text.replace("127.0.0.1:8080:8080", f"127.0.0.1:{self.port}:8080"))
        self.key = add_key(folder / "keys.json", "tests")
        # As the file says: only the owner may read it, and the gateway runs as user 1000.
        os.chown(folder / "keys.json", 1000, 1000)
        self._variables = {**os.environ, "MODELS": str(repository), "MODEL": "m", "TRITONS": "2", "PYTHONPATH": ""}

    def __call__(self, *arguments: str) -> str:
        command = [str(python_of("containers")), "-m", "podman_compose", "-p", self.name, "-f", str(self._file)]
        done = subprocess.run(
            [*command, *arguments], env=self._variables, capture_output=True, text=True, check=False, timeout=280
        )
        return done.stdout + done.stderr


@pytest.fixture
def composed(images: None, repository: Path, tmp_path: Path) -> Iterator[Composed]:
    if os.getuid():
        pytest.skip("The key must belong to user 1000, and only root may give it away.")
    services = Composed(tmp_path, repository)
    try:
        yield services
    finally:
        services("down", "-t", "15")


def test_compose_serves_openais_client_and_recovers_from_dead_stubs(composed: Composed) -> None:
    assert shutil.which("podman")
    said = composed("up", "-d", "--no-build")
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{composed.port}/v1", api_key=composed.key, max_retries=0)

    def answers() -> bool:
        try:
            vector = client.embeddings.create(model="m", input="the cat").data[0].embedding
        except openai.OpenAIError:
            return False
        return bool(np.allclose(vector, by_hand(["the cat"])[0], atol=1e-5))

    assert eventually(answers, within_s=120), said + composed("logs")
    listed = pods.podman("ps", "--filter", f"label=io.podman.compose.project={composed.name}", "--format", "{{.Names}}")
    tritons = [name for name in listed.stdout.split() if "triton" in name.removeprefix(composed.name)]
    assert len(tritons) == 2
    for name in tritons:
        pods.podman("exec", name, "sh", "-c", pods.KILL_STUBS)
    assert eventually(answers, within_s=60), "both Tritons had dead stubs, and each has a watchdog"
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="none").embeddings.create(model="m", input="the cat")
