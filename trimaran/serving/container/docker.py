"""Runs the official Triton container over a model repository."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from trimaran.core.errors import ToolError, UnavailableError
from trimaran.serving.container.image import PORTS, docker_command, served_models


def command_for(repository: Path, ports: Mapping[str, int | None], *, image: str, gpu: bool | None) -> list[str]:
    """The docker command. `ports` are those of the host; `gpu` None means as the models need it."""
    models = served_models(repository)
    return docker_command(
        repository,
        models,
        ports={kind: ports.get(kind) or inner for kind, inner in PORTS.items()},
        image=image,
        gpu=any(model.gpu for model in models) if gpu is None else gpu,
    )


def run_container(command: Sequence[str], *, image: str) -> None:
    """Runs it until it ends. Ctrl-C reaches the container through the terminal's process group, and it drains."""
    if shutil.which("docker") is None:
        raise UnavailableError(
            "There is no docker on the PATH.", hint="Install it, or serve without --docker; --dry-run prints only."
        )
    code = subprocess.run(list(command), check=False).returncode
    if code not in (0, 130, 143):
        raise ToolError(
            f"The container ended with status {code}.",
            hint=f"Is the image there? `docker build -t {image} deploy` makes it.",
            command=list(command),
        )
