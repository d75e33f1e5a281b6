"""A model goes through a registry with a password, into an image volume and an init container.

`make containers` runs this. The registry is docker's own (`docker-registry`); the test is skipped where it is absent.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.commands import trimaran
from tests.containers.conftest import pods
from tests.containers.test_images import answers
from tests.serving.worlds import eventually, free_port
from trimaran.serving.client import Client

pytestmark = [pytest.mark.container, pytest.mark.slow]
USER, PASSWORD = "tests", "secret"
# `htpasswd -B` of that password: the only kind that the registry takes.
HTPASSWD = f"{USER}:$2b$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a\n"
SETTINGS = """
version: 0.1
storage: {{filesystem: {{rootdirectory: {folder}/blobs}}}}
http: {{addr: "127.0.0.1:{port}"}}
auth: {{htpasswd: {{realm: tests, path: {folder}/htpasswd}}}}
"""


class Registry(NamedTuple):
    # 127.0.0.1:port
    address: str
    # With config.json, as `docker login` writes it.
    login: Path


@pytest.fixture
def registry(images: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    program = shutil.which("docker-registry")
    if program is None:
        pytest.skip("There is no docker-registry here.")
    folder, port = tmp_path / "registry", free_port()
    folder.mkdir()
    (folder / "htpasswd").write_text(HTPASSWD)
    (folder / "config.yml").write_text(SETTINGS.format(folder=folder, port=port))
    login = tmp_path / "login"
    login.mkdir()
    secret = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    (login / "config.json").write_text(json.dumps({"auths": {f"127.0.0.1:{port}": {"auth": secret}}}))
    monkeypatch.setenv("DOCKER_CONFIG", str(login))
    for parent in (tmp_path, *tmp_path.parents[:3]):
        parent.chmod(0o755)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([program, "serve", str(folder / "config.yml")], stdout=log, stderr=log)
        try:
            assert eventually(lambda: pods.ask(f"http://127.0.0.1:{port}/v2/")[0] == 401), (folder / "log").read_text()
            yield Registry(f"127.0.0.1:{port}", login)
        finally:
            process.terminate()
            process.wait()


def test_a_signed_model_goes_through_a_registry_into_an_image_volume_and_an_init_container(
    network: pods.Bridge, registry: Registry, repository: Path, tmp_path: Path
) -> None:
    private, public = tmp_path / "key.pem", tmp_path / "key.pub"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", str(private)], check=True)
    subprocess.run(["openssl", "pkey", "-in", str(private), "-pubout", "-out", str(public)], check=True)
    public.chmod(0o644)
    layout = ("-o", tmp_path / "m.oci", "--sign", private)
    made = trimaran(
        "package", "m", "-t", f"{registry.address}/models/m:1", "--push", *layout, "-r", repository, home=tmp_path / "h"
    )
    assert made.returncode == 0, made.stderr
    image = made.stdout.strip()
    assert image.startswith(f"{registry.address}/models/m@sha256:")

    pods.podman("pull", "--tls-verify=false", "--creds", f"{USER}:{PASSWORD}", image)
    try:
        mount = f"type=image,source={image},destination=/image"
        # The arguments of the manifests.
        arguments = ("serve", "/image/models", "--model=m", "--host=0.0.0.0", "--log=-")
        mounted = network.run("mounted", pods.CPU_IMAGE, mount, *arguments)
        with Client(f"{mounted}:8001", timeout_s=20) as client:
            assert eventually(lambda: answers(client), within_s=90), network.log("mounted")
    finally:
        pods.podman("rm", "-f", "-t", "0", network.full("mounted"), check=False)
        pods.podman("rmi", image, check=False)

    pulled = tmp_path / "pulled"
    pulled.mkdir()
    pulled.chmod(0o777)
    folders = (f"{pulled}:/models", f"{public}:/key.pub:ro", f"{registry.login}:/login:ro")
    init = (
        # The registry is on the loopback of this machine.
        *("run", "--rm", "--network", "host", *pods.LOCKED_DOWN, "--env", "DOCKER_CONFIG=/login"),
        *(part for folder in folders for part in ("--volume", folder)),
        *(pods.CPU_IMAGE, "pull", image, "--repository=/models", "--trust-key=/key.pub"),
    )
    pods.podman(*init)
    address = network.run("pulled", pods.CPU_IMAGE, pulled)
    with Client(f"{address}:8001", timeout_s=20) as client:
        assert eventually(lambda: answers(client), within_s=90), network.log("pulled")
    without = pods.podman(*(part for part in init if part not in ("--env", "DOCKER_CONFIG=/login")), check=False)
    assert without.returncode and "401" in without.stderr, "the registry wants its password"
