"""`trimaran serve` and `trimaran stop`: Triton over a model repository."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from trimaran.cli.app import app
from trimaran.cli.options import REPOSITORY, JsonOption, RepositoryArgument, open_store
from trimaran.cli.output import emit
from trimaran.core.choices import TRITON_IMAGE

if TYPE_CHECKING:
    from trimaran.serving.triton.daemon import Running

PortHelp = "Loopback port. A port that is in use is an error; no other is guessed."


@app.command(rich_help_panel="Serve")
def serve(
    repository: RepositoryArgument = REPOSITORY,
    http_port: Annotated[int | None, typer.Option("--http-port", min=1, max=65535, help=PortHelp)] = 8000,
    grpc_port: Annotated[int | None, typer.Option("--grpc-port", min=1, max=65535, help=PortHelp)] = 8001,
    metrics_port: Annotated[int | None, typer.Option("--metrics-port", min=1, max=65535, help=PortHelp)] = 8002,
    free_ports: Annotated[bool, typer.Option("--free-ports", help="Pick three free ports instead.")] = False,
    host: Annotated[
        Literal["127.0.0.1", "0.0.0.0"],  # noqa: S104  (it must be said)
        typer.Option("--host", help="Where to listen; 0.0.0.0 only in a container or behind a firewall."),
    ] = "127.0.0.1",
    metrics_host: Annotated[
        Literal["127.0.0.1", "0.0.0.0"] | None,  # noqa: S104
        typer.Option("--metrics-host", help="Where metrics are read; by default as --host."),
    ] = None,
    models: Annotated[
        list[str] | None, typer.Option("--model", help="Serve only this model; repeat it for several. By default all.")
    ] = None,
    log: Annotated[Path | None, typer.Option("--log", help="Triton's log file; - is this command's output.")] = None,
    tensors: Annotated[
        bool, typer.Option("--tensors", help="Load the tensor-level models too, at the price of a second copy.")
    ] = False,
    cpus: Annotated[int | None, typer.Option("--cpus", min=1, help="CPUs for the server; by default all.")] = None,
    memory_limit: Annotated[
        int | None,
        typer.Option("--memory-limit", min=1, help="MiB for the server with its stubs; beyond it, it is restarted."),
    ] = None,
    hang_timeout_s: Annotated[
        float,
        typer.Option("--hang-timeout", min=1, help="Seconds without a finished request before a model is reloaded."),
    ] = 30.0,
    start_timeout_s: Annotated[
        float, typer.Option("--start-timeout", min=1, help="Seconds until every model answers; builds take minutes.")
    ] = 120.0,
    trust_key: Annotated[
        Path | None,
        typer.Option("--trust-key", help="Load only what is signed with this Ed25519 key (public, PEM)."),
    ] = None,
    shadow: Annotated[
        float,
        typer.Option(
            "--shadow", min=0.0, max=1.0, help="Check this share of live answers with the fp32 graph, such as 0.001."
        ),
    ] = 0.0,
    otlp: Annotated[str, typer.Option("--otlp", help="OpenTelemetry collector, such as http://host:4318.")] = "",
    detach: Annotated[bool, typer.Option("--detach", help="Return when it is ready; `trimaran stop` ends it.")] = False,
    docker: Annotated[bool, typer.Option("--docker", help="Run the official container instead (deploy/).")] = False,
    image: Annotated[str, typer.Option("--image", help="With --docker: the image.")] = TRITON_IMAGE,
    gpu: Annotated[
        bool | None, typer.Option("--gpu/--no-gpu", help="With --docker; by default as models want.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With --docker: print the command only.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Serve a repository with Triton on the loopback; Ctrl-C answers the requests in flight and ends it.

    Each model is sent a canary every second: one that stops answering is loaded again, a server that dies is started
    again on the same ports.

    Example: `trimaran serve model_repository --detach`
    """
    import logging

    from trimaran.core.errors import UsageError
    from trimaran.serving.triton.daemon import serve_detached, serve_forever
    from trimaran.serving.triton.watchdog import WatchdogSettings

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    if detach and str(log) == "-":
        raise UsageError("A detached server has no terminal to log to.", hint="Leave out --detach, or name a file.")
    if docker and trust_key is not None:
        raise UsageError("A container compares no signatures.", hint="Serve without --docker, or without --trust-key.")
    if docker and models:
        raise UsageError("A container serves all models.", hint="Serve without --docker, or without --model.")
    if docker and shadow:
        raise UsageError("A container has no shadow process.", hint="Serve without --docker, or without --shadow.")
    if docker:
        ports_outside = {"http": http_port, "grpc": grpc_port, "metrics": metrics_port}
        _serve_in_container(repository, ports_outside, image=image, gpu=gpu, dry_run=dry_run, as_json=as_json)
        return
    ports = {"http_port": http_port, "grpc_port": grpc_port, "metrics_port": metrics_port}
    settings: dict[str, Any] = {
        **(dict.fromkeys(ports) if free_ports else ports),
        "host": host,
        "metrics_host": metrics_host or host,
        "models": tuple(models or ()),
        "log_file": log,
        "everything": tensors,
        "cpus": cpus,
        "deadline_s": start_timeout_s,
        "otlp": otlp,
        "trust_key": trust_key,
        "shadow": shadow,
        "watchdog": WatchdogSettings(
            hang_s=hang_timeout_s, memory_limit_bytes=memory_limit << 20 if memory_limit else None
        ),
    }
    if detach:
        _announce(serve_detached(repository, **settings), as_json)
    else:
        serve_forever(repository, **settings, on_ready=lambda running: _announce(running, as_json))


@app.command(rich_help_panel="Serve")
def stop(
    repository: Annotated[Path | None, typer.Argument(help="The repository; all servers when none is named.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Stop servers that `trimaran serve` started, answering the requests in flight first.

    Example: `trimaran stop`
    """
    from trimaran.serving.triton.daemon import stop as end

    ended = end(repository)
    if as_json:
        emit({"stopped": [str(state.repository) for state in ended]})
    else:
        typer.echo("\n".join(f"Stopped {state.repository}." for state in ended) or "No server was running.")


def _serve_in_container(
    repository: Path, ports: dict[str, int | None], *, image: str, gpu: bool | None, dry_run: bool, as_json: bool
) -> None:
    import shlex

    from trimaran.serving.container.docker import command_for, run_container

    command = command_for(repository, ports, image=image, gpu=gpu)
    if not dry_run:
        run_container(command, image=image)
    elif as_json:
        emit({"command": command})
    else:
        typer.echo(shlex.join(command))


def _announce(running: Running, as_json: bool) -> None:
    from trimaran.model_repository.versions import unproven_served

    unproven = unproven_served(running.repository)
    if as_json:
        emit({**running.model_dump(mode="json"), "unproven": list(unproven)})
        return
    for model in unproven:
        typer.echo(f"{model} is unproven: it was laid out with --unproven.", err=True)
    for reason in _unchecked(running):
        typer.echo(f"Not shadowed: {reason}", err=True)
    for name, reason in running.refused.items():
        typer.echo(f"Not served: {name}. {reason}", err=True)
    typer.echo(f"Serving {', '.join(running.models)} from {running.repository}", err=True)
    typer.echo(
        f"http 127.0.0.1:{running.http_port}   grpc 127.0.0.1:{running.grpc_port}   "
        f"metrics 127.0.0.1:{running.metrics_port}   log {running.log}",
        err=True,
    )


def _unchecked(running: Running) -> list[str]:
    """Why a served version cannot be checked by the shadow, for each that cannot."""
    if not running.shadow:
        return []
    from trimaran.core.errors import TrimaranError
    from trimaran.core.repository import models_in
    from trimaran.serving.triton.shadow_process import checked

    reasons = []
    models = [model for model in models_in(running.repository) if model.name in running.models and model.task]
    for version in (model.folder / str(number) for model in models for number in model.served):
        try:
            checked(version, open_store(None))
        except TrimaranError as error:
            reasons.append(str(error))
    return reasons
