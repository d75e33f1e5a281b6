"""The official Triton container for a repository: which image, which arguments, which variables."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimaran.core.errors import UsageError

# Built by deploy/Dockerfile: the official image with what the python stages import.
IMAGE = "trimaran-triton"
PORTS = {"http": 8000, "grpc": 8001, "metrics": 8002}
MODELS_FOLDER = "/models"
EXIT_TIMEOUT_S = 10
SERVING_FILE = "serving.json"
# Only a model that is called with text says its task.
_TASK = re.compile(r'key: *"task"')
_ON_GPU = re.compile(r'KIND_GPU|backend: *"tensorrt"')


@dataclass(frozen=True)
class ServedModel:
    """A model as a container must know it: `loaded` with it, and `variables` that its engine was proven with."""

    name: str
    loaded: tuple[str, ...]
    gpu: bool
    threads: int
    variables: dict[str, str]
    size_bytes: int


def served_model(repository: Path, name: str, *, loaded: tuple[str, ...] = ()) -> ServedModel:
    """Read from the newest version. `loaded` are the models to load for it, by default it alone.

    Raises UsageError when it is not there.
    """
    newest = _newest(repository / name)
    if newest is None or not (newest / SERVING_FILE).is_file():
        known = [path.parent.name for path in repository.glob("*/config.pbtxt") if _TASK.search(_text(path))]
        raise UsageError(
            f"{repository} holds no model {name!r} to serve.", hint=f"There: {', '.join(sorted(known)) or 'none'}."
        )
    settings: dict[str, Any] = json.loads(_text(newest / SERVING_FILE))
    configs = [repository / name / "config.pbtxt"]
    configs += [path for path in repository.glob(f"{name}_*/config.pbtxt") if not _TASK.search(_text(path))]
    folders = [found for path in configs if (found := _newest(path.parent))]
    # By inode: the stages of a model share one copy of its weights.
    files = {path.stat().st_ino: path.stat().st_size for folder in folders for path in folder.rglob("*")}
    return ServedModel(
        name=name,
        loaded=loaded or (name,),
        gpu=any(_ON_GPU.search(_text(path)) for path in configs),
        threads=int(settings.get("threads", 1)),
        variables=dict(settings.get("execution_environment", {})),
        size_bytes=sum(files.values()),
    )


def _newest(model: Path) -> Path | None:
    versions = [path for path in model.glob("*") if path.is_dir() and path.name.isdecimal()]
    return max(versions, key=lambda path: int(path.name), default=None)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def triton_arguments(models: list[str], *, address: str) -> list[str]:
    """Only the named models are loaded; `address` is where HTTP and gRPC listen."""
    return [
        "tritonserver",
        f"--model-repository={MODELS_FOLDER}",
        "--model-control-mode=explicit",
        *(f"--load-model={name}" for name in models),
        "--disable-auto-complete-config",
        "--rate-limit=execution_count",
        f"--exit-timeout-secs={EXIT_TIMEOUT_S}",
        f"--http-address={address}",
        f"--grpc-address={address}",
        # Metrics change nothing and are read from outside.
        "--metrics-address=0.0.0.0",
    ]


def docker_command(
    repository: Path, models: list[ServedModel], *, ports: dict[str, int], image: str, gpu: bool
) -> list[str]:
    """`docker run` over the repository, reachable from this machine only: raw Triton has no limits of its own."""
    variables: dict[str, str] = {}
    for model in models:
        for name, value in model.variables.items():
            if variables.setdefault(name, value) != value:
                raise UsageError(
                    f"Models of {repository} want {name} to be {variables[name]} and {value}.",
                    hint="Serve them from two repositories.",
                )
    return [
        *("docker", "run", "--rm", "--init", "--name", f"trimaran-{ports['http']}"),
        *(("--gpus", "all") if gpu else ()),
        *("--user", f"{os.getuid()}:{os.getgid()}"),
        *("--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--read-only"),
        *("--tmpfs", "/tmp", "--shm-size", "1g"),  # noqa: S108  (inside the container)
        *("--stop-timeout", str(EXIT_TIMEOUT_S + 5)),
        *("--volume", f"{repository.absolute()}:{MODELS_FOLDER}:ro"),
        *(part for kind, inner in PORTS.items() for part in ("--publish", f"127.0.0.1:{ports[kind]}:{inner}")),
        *(part for name, value in sorted(variables.items()) for part in ("--env", f"{name}={value}")),
        image,
        *triton_arguments([name for model in models for name in model.loaded], address="0.0.0.0"),  # noqa: S104  (published on the loopback)
    ]
