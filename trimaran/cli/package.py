"""`trimaran package` and `trimaran pull`: models travel as OCI images, by digest."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trimaran.cli.app import app
from trimaran.cli.options import REPOSITORY, JsonOption, RepositoryOption
from trimaran.cli.output import emit
from trimaran.core.errors import UsageError


@app.command(rich_help_panel="Serve")
def package(
    name: Annotated[
        str, typer.Argument(metavar="NAME[:VERSION]", help="The name of the model; by default its served version.")
    ],
    tag: Annotated[str, typer.Option("-t", "--tag", help="The image, such as registry.example/models/minilm:3.")],
    repository: RepositoryOption = REPOSITORY,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The OCI layout to write; by default NAME-VERSION.oci.")
    ] = None,
    push: Annotated[bool, typer.Option("--push", help="Send it to the registry of the tag.")] = False,
    sign: Annotated[
        Path | None, typer.Option("--sign", help="Sign what is in the image with this Ed25519 key (private, PEM).")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a version of a model as an OCI image that holds nothing but its part of the repository.

    No Dockerfile and no daemon are needed. The same version always gives the same digest. Kubernetes mounts the image
    as a volume; `trimaran pull` unpacks it elsewhere.

    Example: `trimaran package minilm:3 -t registry.example/models/minilm:3 --push`
    """
    from trimaran.pipeline.package import package as make

    model, _, number = name.partition(":")
    if number and not number.isdecimal():
        raise UsageError(f"Wanted NAME or NAME:VERSION, found {name!r}.", hint="`trimaran list` shows the versions.")
    made = make(
        repository,
        model,
        int(number) if number else None,
        tag=tag,
        layout=output or Path(f"{name.replace(':', '-')}.oci"),
        sign=sign,
        to_registry=push,
    )
    if as_json:
        emit(made.model_dump(mode="json"))
        return
    typer.echo(f"{made.name} version {made.version} as {made.layout} ({made.digest})", err=True)
    typer.echo(made.pushed or made.digest)


@app.command(rich_help_panel="Serve")
def pull(
    source: Annotated[str, typer.Argument(help="An image in a registry, a layout on disk, or s3://bucket/path.")],
    repository: RepositoryOption = REPOSITORY,
    trust_key: Annotated[
        Path | None, typer.Option("--trust-key", help="Take only what is signed with this Ed25519 key (public, PEM).")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Add the version in an OCI image to a repository, after all its digests were compared.

    A model that the repository does not have is served from now on. The version of a known model waits for `promote`.

    From an object store, `trimaran pull s3://bucket/models` takes the versions that are served there.

    Example: `trimaran pull registry.example/models/minilm:3`
    """
    from trimaran.pipeline.package import pull as add

    for pulled in (added := add(source, repository, trust_key=trust_key)):
        if not as_json:
            what = "is there already" if pulled.known else f"is in {pulled.repository}"
            digest = f" ({pulled.digest})" if pulled.digest else ""
            typer.echo(f"{pulled.name} version {pulled.version} {what}{digest}.")
    if as_json:
        emit({"pulled": [pulled.model_dump(mode="json") for pulled in added]})
