"""`trimaran status` and `trimaran logs`: how the running servers are."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from trimaran.cli.app import app
from trimaran.cli.options import JsonOption
from trimaran.cli.output import emit


@app.command(rich_help_panel="Serve")
def status(as_json: JsonOption = False) -> None:
    """Show the running servers: models, versions, requests, memory, reloads and restarts.

    Example: `trimaran status`
    """
    from trimaran.pipeline.live import statuses
    from trimaran.pipeline.up_states import ups

    servers, gateways = statuses(), ups()
    if as_json:
        emit(
            {
                "servers": [server.model_dump(mode="json") for server in servers],
                "up": [state.model_dump(mode="json") for state in gateways],
            }
        )
        return
    if not servers:
        typer.echo("No server is running. `trimaran serve` or `trimaran up` starts one.")
    for server in servers:
        health = "answers" if server.answers else "does not answer"
        typer.echo(f"{server.repository}: {health}, {server.memory_bytes / 1e6:.0f} MB")
        typer.echo(f"  http {server.http}   grpc {server.grpc}   log {server.log}")
        typer.echo(f"  {server.reloads} models loaded again, {server.restarts} restarts")
        for model in server.models:
            release = f"{model.version} ({model.digest})" if model.digest else model.version
            typer.echo(f"  {model.name} version {release}: {model.answered} answered, {model.failed} failed")
        if server.shadow:
            typer.echo(f"  shadow check of {100 * server.shadow:g} %, {server.shadow_restarts} restarts of its process")
        for seen in server.shadowed:
            typer.echo(f"  {seen}")
        for name, reason in server.refused.items():
            typer.echo(f"  {name} is not served: {reason}")
        for model_version in set(server.not_loaded) - set(server.refused):
            typer.echo(f"  {model_version} is in the repository and not loaded: `trimaran repository load` loads it")
    for state in gateways:
        typer.echo(f"{state.name} is up at {state.url}")


@app.command(rich_help_panel="Serve")
def logs(
    repository: Annotated[Path | None, typer.Argument(help="The repository; all servers when none is named.")] = None,
    lines: Annotated[int, typer.Option("-n", "--lines", min=1, help="How many of the last lines.")] = 40,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Keep printing new lines until Ctrl-C.")] = False,
) -> None:
    """Print the last lines of the logs of running servers.

    Example: `trimaran logs --follow`
    """
    from trimaran.core.errors import UnavailableError
    from trimaran.serving.triton.daemon import running

    chosen = [state for state in running() if repository is None or state.repository == repository.absolute()]
    if not chosen:
        raise UnavailableError("No server is running there.", hint="`trimaran serve` starts one.")
    streams = []
    for state in chosen:
        stream = state.log.open(encoding="utf-8", errors="replace")
        typer.echo("".join(stream.readlines()[-lines:]), nl=False)
        streams.append(stream)
    while follow:
        new = "".join(stream.read() for stream in streams)
        typer.echo(new, nl=False)
        if not new:
            time.sleep(0.2)
    for stream in streams:
        stream.close()
