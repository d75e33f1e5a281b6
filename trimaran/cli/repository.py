"""`trimaran repository`: lay out and check Triton model repositories."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trimaran.cli.app import app
from trimaran.cli.options import (
    REPOSITORY,
    JsonOption,
    NameOption,
    RepositoryArgument,
    RepositoryOption,
    StoreOption,
    ThreadsOption,
    open_store,
)
from trimaran.cli.output import emit
from trimaran.core.choices import Rows

repository_app = typer.Typer(no_args_is_help=True, help="Lay out and check Triton model repositories.")
app.add_typer(repository_app, name="repository", rich_help_panel="Serve")


@repository_app.command("lay-out")
def lay_out_command(
    artifact: Annotated[str, typer.Argument(help="A candidate: folder, name in the store, or digest.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The model repository to add to.")] = REPOSITORY,
    name: NameOption = None,
    rows: Annotated[
        Rows | None,
        typer.Option("--rows", help="How rows may share a call; as it was proven, and `alone` if it was not."),
    ] = None,
    separate: Annotated[
        bool | None,
        typer.Option("--separate/--together", help="The engine as a model of its own; by default so on a GPU only."),
    ] = None,
    unproven: Annotated[
        bool, typer.Option("--unproven", help="Publish without a proof, and mark it in the configuration.")
    ] = False,
    threads: ThreadsOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add an artifact to a repository as the next version of a model.

    `trimaran deploy` must have judged the artifact before, and it must have kept its gates. Otherwise `--unproven`
    publishes it with a mark, which `check`, `list`, `serve` and the gateway show.

    Example: `trimaran repository lay-out openvino-fp32-41d0 --name minilm`
    """
    from trimaran.core.environment import usable_cores
    from trimaran.pipeline.publish import publish_by_hand

    artifacts = open_store(store)
    chosen = artifacts.open(artifact)
    deployment = publish_by_hand(
        chosen,
        artifacts,
        repository=output,
        name=name or chosen.name,
        rows=rows,
        threads=threads or usable_cores(),
        separate=separate,
        unproven=unproven,
    )
    if as_json:
        emit(deployment.model_dump(mode="json"))
    else:
        typer.echo(f"{deployment.repository / deployment.name / str(deployment.version)}")


@repository_app.command("seal")
def seal_command(
    repository: RepositoryArgument = REPOSITORY,
    key: Annotated[
        Path | None, typer.Option("--key", help="Sign every version with this Ed25519 key (private, PEM).")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write the digest lists of versions that have none, and sign all lists; exit 4 when the repository has a problem.

    Versions that an older trimaran laid out have no list. Only files that their manifest names can be compared before.
    A server that is started with `--trust-key` loads nothing that is not signed.

    Example: `trimaran repository seal model_repository`
    """
    from trimaran.model_repository.check import require_sound
    from trimaran.model_repository.seal import seal

    require_sound(repository)
    sealed = seal(repository, key=key)
    if as_json:
        emit({"repository": str(repository), "sealed": [str(path) for path in sealed]})
    else:
        typer.echo("\n".join(f"Sealed {path}." for path in sealed) or "Every version has its list.")


@repository_app.command("load")
def load_command(
    name: Annotated[str, typer.Argument(help="A model of the repository, such as NAME_openvino.")],
    repository: RepositoryOption = REPOSITORY,
    unload: Annotated[bool, typer.Option("--unload", help="Take it out of memory again.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Load a tensor-level model into the servers that `trimaran serve` runs over the repository.

    Triton's own `POST /v2/repository/models/NAME/load` is closed: it takes code from everyone who reaches the port.

    Example: `trimaran repository load minilm_openvino`
    """
    from trimaran.model_repository.versions import model_versions
    from trimaran.serving.triton.daemon import load_on_servers

    model_versions(repository, name)
    ports = load_on_servers(repository, name, unload=unload)
    if as_json:
        emit({"model": name, "loaded": not unload, "servers": list(ports)})
    else:
        typer.echo(f"{name} is {'unloaded from' if unload else 'loaded into'} {len(ports)} server(s).")


@repository_app.command("check")
def check_command(repository: RepositoryArgument = REPOSITORY, as_json: JsonOption = False) -> None:
    """Name every problem of a repository at once, each with its place and its remedy; exit 4 when there is one.

    Example: `trimaran repository check model_repository`
    """
    from trimaran.model_repository.check import problems, require_sound
    from trimaran.model_repository.check_prepared import prepared_states
    from trimaran.model_repository.versions import unproven_served

    all_problems = problems(repository)
    states = () if all_problems else prepared_states(repository)
    unproven = () if all_problems else unproven_served(repository)
    if as_json:
        listed = [problem.model_dump(mode="json") for problem in all_problems]
        prepared = [state.model_dump(mode="json") for state in states]
        emit({"repository": str(repository), "problems": listed, "prepared": prepared, "unproven": list(unproven)})
    require_sound(repository)
    if not as_json:
        typer.echo(f"{repository}: no problem found.")
        for state in states:
            typer.echo(str(state))
        for model in unproven:
            typer.echo(f"{model} is unproven.")
