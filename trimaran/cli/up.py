"""`trimaran up` and `trimaran down`: one command to a live URL."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from trimaran.cli.app import app
from trimaran.cli.options import (
    FidelityOption,
    HubOption,
    JsonOption,
    NameOption,
    StoreOption,
    TaskOption,
    deploy_flags,
    open_store,
    progress_on_stderr,
)
from trimaran.cli.output import emit

if TYPE_CHECKING:
    from trimaran.pipeline.up import Ready


@app.command(rich_help_panel="The whole line")
def up(
    context: typer.Context,
    model: Annotated[str, typer.Argument(help="A trained model as for `deploy`, or the name of a deployed one.")],
    full: Annotated[
        bool, typer.Option("--full", help="Deploy with the INT8 search and the full race, as `trimaran deploy` does.")
    ] = False,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port of the gateway; 0 picks a free one.")
    ] = 8080,
    output: Annotated[str, typer.Option("-o", "--output", help="The model repository.")] = "model_repository",
    task: TaskOption = None,
    name: NameOption = None,
    fidelity: FidelityOption = "strict",
    hub: HubOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Deploy a model (or reuse it), serve it, and print a URL to call; Ctrl-C ends all of it.

    The gateway listens on this machine only and asks for no key. `trimaran serve` and `trimaran gateway` are for more.

    Example: `trimaran up ./my-model`
    """
    import logging

    from trimaran.core.config import deploy_config
    from trimaran.pipeline.up import up as bring_up

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    bring_up(
        deploy_config({**deploy_flags(context), "quick": not full}),
        host="127.0.0.1",
        port=port,
        store=open_store(store),
        progress=progress_on_stderr(),
        on_ready=lambda ready: _announce(ready, as_json),
    )


@app.command(rich_help_panel="The whole line")
def down(as_json: JsonOption = False) -> None:
    """End what `trimaran up` started, answering the requests in flight first.

    Example: `trimaran down`
    """
    from trimaran.pipeline.up import down as take_down

    ended = take_down()
    if as_json:
        emit({"ended": [state.url for state in ended]})
    else:
        typer.echo(
            "\n".join(f"Ended {state.name} at {state.url}." for state in ended)
            or "Nothing that `trimaran up` started is running."
        )


def _announce(ready: Ready, as_json: bool) -> None:
    lines = {"url": ready.url, "name": ready.name, "curl": ready.curl, "python": ready.python}
    if as_json:
        emit(lines)
    else:
        for key, value in lines.items():
            if value:
                typer.echo(f"{key:8} {value}")
    sys.stdout.flush()
