"""`trimaran finish`: proves laid-out models on the machine that will serve them."""

from __future__ import annotations

from typing import Annotated

import typer

from trimaran.cli.app import app
from trimaran.cli.options import (
    REPOSITORY,
    JsonOption,
    RepositoryArgument,
    StoreOption,
    open_store,
    progress_on_stderr,
)
from trimaran.cli.output import emit


@app.command(rich_help_panel="Serve")
def finish(
    repository: RepositoryArgument = REPOSITORY,
    name: Annotated[str | None, typer.Argument(help="The model; all that need it by default.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Prove INT8 models here that were proven on a CPU with other instructions; exit 4 when one fails.

    INT8 answers differ between CPUs with and without VNNI. The golden bundle of a model has requests with eager
    PyTorch's answers: the engine must keep its limits on this CPU too. It takes about a minute.

    Example: `trimaran finish model_repository minilm`
    """
    from trimaran.pipeline.reprove import reprove_repository

    proofs = reprove_repository(repository, name, store=open_store(store), progress=progress_on_stderr())
    if as_json:
        emit({"repository": str(repository), "proven": [proof.model_dump(mode="json") for proof in proofs]})
        return
    for proof in proofs:
        typer.echo(f"{proof.name} version {proof.version} is proven here ({proof.products_by}).")
    if not proofs:
        typer.echo(f"{repository}: every served model is proven here.")
