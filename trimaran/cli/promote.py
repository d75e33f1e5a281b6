"""`trimaran promote` and its neighbours: which version is served, and whether it answers as it was proven to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trimaran.cli.app import app
from trimaran.cli.options import (
    REPOSITORY,
    AnyRepositoryOption,
    JsonOption,
    NameArgument,
    ProtocolOption,
    RepositoryOption,
    progress_on_stderr,
)
from trimaran.cli.output import emit

if TYPE_CHECKING:
    from trimaran.model_repository.versions import ModelVersions
    from trimaran.pipeline.promote import Promoted

VersionArgument = Annotated[int, typer.Argument(min=1, help="The version's number, as `trimaran list` shows it.")]
ProveOption = Annotated[
    bool,
    typer.Option("--prove/--no-prove", help="Serve the version aside first and ask it its golden questions."),
]


@app.command("list", rich_help_panel="Serve")
def list_command(repository: RepositoryOption = REPOSITORY, as_json: JsonOption = False) -> None:
    """List the models of a repository, their versions, and which of them is served.

    Example: `trimaran list -r model_repository`
    """
    from trimaran.model_repository.versions import list_models

    models = list_models(repository)
    if as_json:
        emit({"repository": str(repository), "models": [model.model_dump(mode="json") for model in models]})
        return
    if not models:
        typer.echo(f"{repository} holds no models. `trimaran deploy` adds one.", err=True)
    for model in models:
        versions = ", ".join(_shown(version, model) for version in model.versions) or "no version"
        kind = model.task or "tensors, loaded on demand"
        typer.echo(f"{model.name}\t{versions}\t{kind}{', promoted' if model.previous else ''}")


@app.command(rich_help_panel="Serve")
def promote(
    name: NameArgument,
    version: VersionArgument,
    repository: RepositoryOption = REPOSITORY,
    prove: ProveOption = True,
    as_json: JsonOption = False,
) -> None:
    """Serve another version of a model, on running servers too. No request fails meanwhile.

    A version is refused with exit code 4 if it does not load or no longer gives its proven answers. A damaged version
    is refused with exit code 5. The version that was served stays in both cases. Later deployments do not replace a
    promoted version.

    Example: `trimaran promote minilm 2`
    """
    from trimaran.pipeline.promote import promote as switch

    _print(switch(repository, name, version, prove=prove, progress=progress_on_stderr()), as_json)


@app.command(rich_help_panel="Serve")
def rollback(
    name: NameArgument,
    repository: RepositoryOption = REPOSITORY,
    prove: ProveOption = True,
    as_json: JsonOption = False,
) -> None:
    """Serve again what was served before the latest `trimaran promote`.

    Example: `trimaran rollback minilm`
    """
    from trimaran.pipeline.promote import rollback as switch

    _print(switch(repository, name, prove=prove, progress=progress_on_stderr()), as_json)


@app.command(rich_help_panel="Serve")
def remove(
    name: NameArgument, version: VersionArgument, repository: RepositoryOption = REPOSITORY, as_json: JsonOption = False
) -> None:
    """Remove a version that is not served.

    Example: `trimaran remove minilm 1`
    """
    from trimaran.model_repository.versions import remove as take_away

    removed = take_away(repository, name, version)
    if as_json:
        emit({"removed": [str(path) for path in removed]})
    else:
        typer.echo("\n".join(f"Removed {path}." for path in removed))


@app.command(rich_help_panel="Serve")
def verify(
    url: Annotated[
        str | None,
        typer.Argument(
            help="host:port of a live Triton, ours or the official container's; by default the running server's."
        ),
    ] = None,
    name: Annotated[str | None, typer.Argument(help="The model; all that carry a golden bundle by default.")] = None,
    repository: AnyRepositoryOption = str(REPOSITORY),
    protocol: ProtocolOption = "grpc",
    timeout_s: Annotated[float, typer.Option("--timeout", min=0.001, help="Seconds that a model may take.")] = 300.0,
    as_json: JsonOption = False,
) -> None:
    """Ask a live endpoint the golden questions of a repository; exit 4 when its answers are not what was proven.

    The golden bundle is made by `trimaran deploy`: real texts with eager PyTorch's answers, in each version's folder.

    Without a URL the running server of the repository is asked: `trimaran verify minilm`.

    A repository in an object store is read there, without its weights: `-r s3://bucket/models`.

    Example: `trimaran verify localhost:8001 minilm`
    """
    from trimaran.core.remote_repository import repository_folder
    from trimaran.pipeline.live import any_url
    from trimaran.serving.client import Client
    from trimaran.serving.triton.golden_check import verify_all
    from trimaran.serving.triton.verify import require_faithful

    if url and ":" not in url and name is None:
        url, name = None, url
    url = url or any_url(Path(repository), protocol)
    scheme = url.partition("://")[0] if "://" in url else ""
    speaks: Any = {"http": "http", "https": "http", "grpc": "grpc", "grpcs": "grpc"}.get(scheme, protocol)
    with repository_folder(repository) as folder, Client(url, protocol=speaks, timeout_s=timeout_s) as client:
        verified = verify_all(client, folder, name)
    if as_json:
        emit(
            {
                "url": url or client.url,
                "models": [model.model_dump(mode="json") | {"holds": model.holds} for model in verified],
            }
        )
    else:
        for model in verified:
            typer.echo(f"{model.name}\t{model.rows} requests\t{'; '.join(map(str, model.checks))}")
    for model in verified:
        require_faithful(model)


def _shown(version: int, model: ModelVersions) -> str:
    number = f"[{version}]" if version in model.served else str(version)
    return f"{number} unproven" if version in model.unproven else number


def _print(promoted: Promoted, as_json: bool) -> None:
    if as_json:
        emit(promoted.model_dump(mode="json"))
        return
    before = ", ".join(map(str, promoted.before)) or "none"
    live = f"; {len(promoted.servers)} live server(s) switched" if promoted.servers else ""
    typer.echo(f"{promoted.name} serves version {promoted.version}, before {before}{live}.")
