"""The official Triton container for a repository: its image, arguments and environment variables."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from trimaran.core.backends import BACKENDS
from trimaran.core.errors import UsageError
from trimaran.core.model_config import RELEASE
from trimaran.core.repository import RepositoryModel, models_in, stages_of
from trimaran.core.serving_json import SERVING_FILE, Serving, read_serving
from trimaran.judging.prepared import PREPARED_FILE
from trimaran.serving.triton.flags import EXIT_TIMEOUT_S, address_flags, restricting_flags, server_flags

PORTS = {"http": 8000, "grpc": 8001, "metrics": 8002}
MODELS_FOLDER = "/models"
# A volume that lasts, for engines that are built when a model is loaded.
PLANS_FOLDER, PLANS_VOLUME = "/plans", "trimaran-plans"
# Where `trimaran finish --into` puts the repository that is served.
FINISHED_FOLDER = f"{PLANS_FOLDER}/models"
# Of NVIDIA's images. For an older driver it puts the newer driver library of the image on the path.
NVIDIA_ENTRYPOINT = "/opt/nvidia/nvidia_entrypoint.sh"
EVERYWHERE = "0.0.0.0"  # noqa: S104  (inside a container or pod, which decides what is published)


@dataclass(frozen=True)
class PackedModel:
    """What a container must know of a model that it serves."""

    name: str
    # The models to load: this one, and the stages that it calls by name.
    loaded: tuple[str, ...]
    gpu: bool
    # The highest number of a GPU that it opens.
    device: int
    threads: int
    # Environment variables that its engine was proven with.
    variables: dict[str, str]
    # Whether a GPU machine must finish it before it serves.
    prepared: bool
    # Of all its files, where files that stages share count once.
    size_bytes: int


def served_models(repository: Path) -> list[PackedModel]:
    """Every model of the repository that is called with text. Raises UsageError when there is none."""
    names = [model.name for model in models_in(repository) if model.task]
    if not names:
        raise UsageError(f"{repository} holds no models to serve.", hint="`trimaran deploy` fills a repository.")
    return [served_model(repository, name) for name in names]


def served_model(repository: Path, name: str) -> PackedModel:
    """Read from the version that is served. Raises UsageError when the repository does not have the model."""
    version = next((_served(model) for model in models_in(repository) if model.name == name), None)
    if version is None or not (version / SERVING_FILE).is_file():
        known = ", ".join(model.name for model in models_in(repository) if model.task)
        raise UsageError(f"{repository} holds no model {name!r} to serve.", hint=f"There: {known or 'none'}.")
    serving = read_serving(version)
    stages = stages_of(repository, name)
    parts = [*(model for model in models_in(repository) if model.name == name), *stages]
    groups = [part.config.instance_group for part in parts if part.config and part.config.instance_group]
    return PackedModel(
        name=name,
        # Triton itself loads the steps of an ensemble, which are "on demand".
        loaded=(*(stage.name for stage in stages if not stage.on_demand), name),
        gpu=_opens_gpu(serving) or any(part.config is not None and part.config.on_gpu for part in parts),
        device=max(int(serving.engine_options.get("device", 0)), *(gpu for group in groups for gpu in group.gpus), 0),
        threads=serving.threads,
        variables=serving.execution_environment,
        prepared=(version / PREPARED_FILE).is_file(),
        size_bytes=_size_bytes(parts),
    )


def release_of(repository: Path, name: str) -> str:
    """The served version and the digest of its files, such as `2:3f6a…`; the number alone in old repositories."""
    (model,) = (model for model in models_in(repository) if model.name == name)
    parameters = model.config.parameters if model.config else {}
    return parameters.get(RELEASE) or str(model.served[-1])


def _opens_gpu(serving: Serving) -> bool:
    """Whether the text stage itself opens a GPU, which its configuration does not tell Triton."""
    return serving.backend in BACKENDS and BACKENDS[serving.backend].needs_driver


def _size_bytes(parts: list[RepositoryModel]) -> int:
    folders = [folder for part in parts if (folder := _served(part))]
    # By inode: the stages of a model share one copy of its weights.
    files = {path.stat().st_ino: path.stat().st_size for folder in folders for path in folder.rglob("*")}
    return sum(files.values())


def _served(model: RepositoryModel) -> Path | None:
    return model.folder / str(model.served[-1]) if model.served else None


def triton_arguments(models: list[str], *, address: str, folder: str = MODELS_FOLDER) -> list[str]:
    """The command of the container. HTTP and gRPC listen at `address`; metrics are read from outside."""
    return closed(server_flags(folder, models) + address_flags(address, metrics_address=EVERYWHERE))


def closed(flags: list[str]) -> list[str]:
    """tritonserver with these flags and a secret that is made when the container starts.

    Nobody is told the secret: the models of a container are never loaded by hand.
    """
    restricting = " ".join(restricting_flags("$secret"))
    script = f'read -r secret < /proc/sys/kernel/random/uuid && exec tritonserver "$@" {restricting}'
    return ["sh", "-c", script, "tritonserver", *flags]


def _devices(models: list[PackedModel]) -> str:
    """Up to the one that a model opens, so that GPUs keep their numbers. Docker reads a list as one quoted field."""
    numbers = ",".join(map(str, range(1 + max(model.device for model in models))))
    return f'"device={numbers}"' if "," in numbers else f"device={numbers}"


def docker_command(
    repository: Path, models: list[PackedModel], *, ports: dict[str, int], image: str, gpu: bool
) -> list[str]:
    """`docker run` over the repository, reachable from this machine only: raw Triton limits nothing by itself."""
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
        *(("--gpus", _devices(models), "--volume", f"{PLANS_VOLUME}:{PLANS_FOLDER}") if gpu else ()),
        *("--user", f"{os.getuid()}:{os.getgid()}" if os.getuid() else "1000:1000"),
        *("--cpus", str(min(sum(model.threads for model in models), os.cpu_count() or 1))),
        *("--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--read-only"),
        *("--tmpfs", "/tmp", "--shm-size", "1g"),  # noqa: S108  (inside the container)
        *("--stop-timeout", str(EXIT_TIMEOUT_S + 5)),
        *("--volume", f"{repository.absolute()}:{MODELS_FOLDER}:ro"),
        *(part for kind, inner in PORTS.items() for part in ("--publish", f"127.0.0.1:{ports[kind]}:{inner}")),
        *(part for name, value in sorted(variables.items()) for part in ("--env", f"{name}={value}")),
        image,
        # Only the loopback of this machine reaches it: see --publish.
        *triton_arguments([name for model in models for name in model.loaded], address=EVERYWHERE),
    ]
