"""Commands for other people's machines: the official container, and Kubernetes."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Annotated

import typer

from trimaran.cli import app
from trimaran.cli.deploy import JsonOption, emit
from trimaran.core.errors import ToolError, UnavailableError
from trimaran.serving.container.kubernetes import KubernetesOptions

_DEFAULTS = KubernetesOptions()


@app.command(rich_help_panel="Serve")
def kubernetes(
    name: Annotated[str, typer.Argument(help="The model to serve.")],
    repository: Annotated[Path, typer.Option("--repository", help="Where it is; read for what it needs.")] = Path(
        "model_repository"
    ),
    namespace: Annotated[str, typer.Option("--namespace", help="Where to put it.")] = _DEFAULTS.namespace,
    claim: Annotated[str, typer.Option("--claim", help="The volume claim that holds the repository.")] = (
        _DEFAULTS.claim
    ),
    image: Annotated[str, typer.Option("--image", help="Triton with what python stages need.")] = _DEFAULTS.image,
    gateway_image: Annotated[str, typer.Option("--gateway-image", help="The gateway.")] = _DEFAULTS.gateway_image,
    replicas: Annotated[int, typer.Option("--replicas", min=1, help="Pods at least.")] = _DEFAULTS.replicas,
    most_replicas: Annotated[int, typer.Option("--most-replicas", min=1, help="Pods at most.")] = (
        _DEFAULTS.most_replicas
    ),
    pending: Annotated[
        int, typer.Option("--pending", min=1, help="Requests that may wait in one Triton before a pod is added.")
    ] = _DEFAULTS.pending,
    callers: Annotated[str, typer.Option("--callers", help="The only namespace that may call; by default all.")] = "",
    monitoring: Annotated[str, typer.Option("--monitoring", help="The namespace that reads metrics.")] = (
        _DEFAULTS.monitoring
    ),
    as_json: JsonOption = False,
) -> None:
    """Print Kubernetes objects for a model: Deployment, Service, autoscaler, disruption budget and network policy.

    `trimaran kubernetes minilm | kubectl apply -f -`, after the images of deploy/ are where the cluster finds them,
    the repository is in the claim, and a secret NAME-keys holds keys.json (see docs/gateway.md).
    """
    import yaml

    from trimaran.serving.container.image import served_model
    from trimaran.serving.container.kubernetes import objects

    options = KubernetesOptions(
        namespace=namespace,
        claim=claim,
        image=image,
        gateway_image=gateway_image,
        replicas=replicas,
        most_replicas=most_replicas,
        pending=pending,
        callers=callers,
        monitoring=monitoring,
    )
    made = objects(served_model(repository, name), options)
    if as_json:
        emit({"apiVersion": "v1", "kind": "List", "items": made})
    else:
        # By way of JSON, which shares nothing: people read this, and YAML would write shared parts as references.
        typer.echo(yaml.safe_dump_all(map(json.loads, map(json.dumps, made)), sort_keys=False), nl=False)


def serve_in_container(
    repository: Path, ports: dict[str, int | None], *, image: str, gpu: bool | None, dry_run: bool, as_json: bool
) -> None:
    """Runs the official container over the repository until it ends, or only prints how. `gpu` None: as models want."""
    from trimaran.serving.container.image import PORTS, docker_command, served_models

    models = served_models(repository)
    command = docker_command(
        repository,
        models,
        ports={kind: ports.get(kind) or inner for kind, inner in PORTS.items()},
        image=image,
        gpu=any(model.gpu for model in models) if gpu is None else gpu,
    )
    if dry_run:
        if as_json:
            emit({"command": command})
        else:
            typer.echo(shlex.join(command))
        return
    if shutil.which("docker") is None:
        raise UnavailableError(
            "There is no docker on the PATH.", hint="Install it, or serve without --docker; --dry-run prints only."
        )
    # It is in this terminal's process group: Ctrl-C reaches it, and it drains.
    code = subprocess.run(command, check=False).returncode
    if code not in (0, 130, 143):
        raise ToolError(
            f"The container ended with status {code}.",
            hint=f"Is the image there? `docker build -t {image} deploy` makes it.",
            command=command,
        )
