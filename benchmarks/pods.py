"""Containers of the images in deploy/, run by podman on a bridge network of their own, as a cluster would run them."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimaran.core.serving_json import Serving, write_serving
from trimaran.core.spec import Range, ShapeProfile, TokenizerSpec

CPU_IMAGE, GATEWAY_IMAGE = "localhost/trimaran-cpu", "localhost/trimaran-gateway"
# What docker, compose and the manifests run with; podman's --tmpfs is noexec by default, as docker's is.
LOCKED_DOWN = (
    "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges",
    "--tmpfs", "/tmp:rw,noexec,mode=1777", "--shm-size", "256m",
)  # fmt: skip
KILL_STUBS = "for p in /proc/[0-9]*; do grep -q '[b]ackend_stub' $p/cmdline && kill -9 ${p#/proc/}; done; true"
# Answers with the number of its version, after a moment in which it computes nothing. So each replica has a rate of its
# own, however many share the cores.
_MODEL = """
import time
import numpy as np
import triton_python_backend_utils as triton


class TritonPythonModel:
    def initialize(self, args):
        self.version = float(args["model_version"])

    def execute(self, requests):
        time.sleep({seconds})
        vector = np.array([[self.version]], np.float32)
        return [triton.InferenceResponse([triton.Tensor("EMBEDDING", vector)]) for _ in requests]
"""
_CONFIG = """
name: "m" backend: "python" max_batch_size: 1
input {{ name: "TEXT" data_type: TYPE_STRING dims: 1 }}
output {{ name: "EMBEDDING" data_type: TYPE_FP32 dims: 1 }}
instance_group {{ count: 1 kind: KIND_CPU }}
dynamic_batching {{
  priority_levels: 2 default_priority_level: 2
  default_queue_policy {{ max_queue_size: 256 default_timeout_microseconds: 10000000 }}
}}
parameters {{ key: "task" value {{ string_value: "embedding" }} }}
version_policy {{ specific {{ versions: {served} }} }}
"""


def podman(*arguments: object, check: bool = True, timeout_s: float = 300.0) -> subprocess.CompletedProcess[str]:
    command = ["podman", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout_s)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
    return done


def why_not() -> str:
    """Why no containers can be run here, or ""."""
    if shutil.which("podman") is None:
        return "There is no podman here."
    for image in (CPU_IMAGE, GATEWAY_IMAGE):
        if podman("image", "exists", image, check=False).returncode:
            return f"There is no image {image}: `make containers` builds it."
    return ""


def served_in(container: str) -> dict[str, Any]:
    """What `trimaran status` says inside a container."""
    (server,) = json.loads(podman("exec", container, "trimaran", "status", "--json").stdout)["servers"]
    return dict(server)


@dataclass(frozen=True)
class Bridge:
    """A network with a name server. Its containers end with it."""

    name: str

    def full(self, name: str) -> str:
        return f"{self.name}-{name}"

    def run(self, name: str, image: str, models: Path | str, *arguments: object, alias: str = "") -> str:
        """Starts a container, locked down, and returns its address.

        `models` is a repository, or the mount of something else, such as `type=image,source=…,destination=/image`.
        """
        network = f"{self.name}:alias={alias}" if alias else self.name
        mount = models if isinstance(models, str) else f"type=bind,source={models},destination=/models,readonly"
        places = ("--name", self.full(name), "--network", network, "--mount", mount)
        podman("run", "-d", "--replace", *places, *LOCKED_DOWN, image, *arguments)
        return self.address(name)

    def gateway(self, repository: Path, url: str, *options: object) -> str:
        """Starts a gateway without keys; returns its URL."""
        addresses = (f"--url={url}", "--host=0.0.0.0", "--port=8080", "--no-auth")
        address = self.run(
            "gateway", GATEWAY_IMAGE, repository, "gateway", "--repository=/models", *addresses, *options
        )
        return f"http://{address}:8080"

    def facts(self, name: str) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads(podman("inspect", self.full(name)).stdout)[0]
        return facts

    def address(self, name: str) -> str:
        return str(self.facts(name)["NetworkSettings"]["Networks"][self.name]["IPAddress"])

    def execute(self, name: str, *command: object, check: bool = True) -> subprocess.CompletedProcess[str]:
        return podman("exec", self.full(name), *command, check=check)

    @property
    def host(self) -> str:
        """The address by which containers reach this machine."""
        facts = json.loads(podman("network", "inspect", self.name).stdout)[0]
        return str(facts["subnets"][0]["gateway"])

    def kill_stubs(self, name: str) -> None:
        self.execute(name, "sh", "-c", KILL_STUBS)

    def log(self, name: str) -> str:
        logs = podman("logs", self.full(name), check=False)
        return logs.stdout + logs.stderr


@contextlib.contextmanager
def bridge() -> Iterator[Bridge]:
    made = Bridge(f"trimaran-{uuid.uuid4().hex[:8]}")
    podman("network", "create", made.name)
    try:
        yield made
    finally:
        # At once: removing the network alone would wait for each container to stop gracefully. One after the other:
        # podman 4.3 can wait for itself for ever when it removes several of one network.
        left = podman("ps", "-aq", "--filter", f"network={made.name}", check=False).stdout.split()
        for container in left:
            with contextlib.suppress(subprocess.TimeoutExpired):
                podman("rm", "-f", "-t", "0", container, check=False, timeout_s=60)
        podman("network", "rm", "-f", made.name, check=False)


def ask(url: str, body: object = None, *, timeout_s: float = 30.0) -> tuple[int, bytes]:
    """Status and body; status 0 when there is no answer."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"} if data else {})
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
    except OSError:
        return 0, b""


def gauge(gateway: str, name: str) -> dict[str, float]:
    """Of each Triton, by its address: a gauge or counter of the gateway such as `replica_ready`."""
    prefix = f'trimaran_gateway_{name}{{replica="'
    lines = ask(f"{gateway}/metrics")[1].decode().splitlines()
    own = [line.removeprefix(prefix) for line in lines if line.startswith(prefix)]
    return {line.split('"')[0]: float(line.split()[-1]) for line in own}


def ready(gateway: str) -> int:
    """How many Tritons the gateway finds ready."""
    return sum(value == 1.0 for value in gauge(gateway, "replica_ready").values())


def wait_for(condition: Callable[[], bool], what: str, *, within_s: float = 300.0) -> None:
    end = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {within_s:g} s")
        time.sleep(0.2)


def lay_out_versions(repository: Path, *served: int, seconds: float) -> None:
    """A model `m` with versions 1 and 2, of which these are served. It answers with the number of its version."""
    for version in ("1", "2"):
        folder = repository / "m" / version
        if not folder.exists():
            folder.mkdir(parents=True)
            (folder / "model.py").write_text(_MODEL.format(seconds=seconds))
            _write_texts(folder)
    (repository / "m" / "config.pbtxt").write_text(_CONFIG.format(served=list(served)))
    for path in (repository, *repository.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


def _write_texts(version: Path) -> None:
    """The tokenizer of a few words, and what the gateway reads of a version."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {word: number for number, word in enumerate(("[PAD]", "[UNK]", "the", "dog"))}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(version / "tokenizer.json"))
    few, some = Range(minimum=1, typical=1, maximum=1), Range(minimum=1, typical=8, maximum=16)
    inputs = ("input_ids", "attention_mask")
    serving = Serving(
        task="embedding", backend="onnxruntime", entry="model.onnx", rows="alone", threads=1, labels=(), facts={},
        tokenizer=TokenizerSpec(pad_id=0, inputs=inputs), profile=ShapeProfile(batch=few, sequence=some),
        engine_options={}, execution_environment={},
    )  # fmt: skip
    write_serving(version, serving)
