"""Commands for the gateway: the one port to expose, and the keys to it."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated

import typer

from trimaran.cli.app import app
from trimaran.cli.options import REPOSITORY, JsonOption
from trimaran.cli.output import emit
from trimaran.core.choices import MOST_TEXTS, Protocol
from trimaran.core.errors import UsageError

gateway_app = typer.Typer(
    invoke_without_command=True,
    help="""Put a gateway before Triton: the only thing to expose. It speaks OpenAI's `/v1/embeddings`, `/rerank`,
`/classify`, `/entities`, `/answer`, `/fill` and bert-as-service's `/encode`, wants a key, and limits what one caller
may take.

First `trimaran serve --detach` and `trimaran gateway key add NAME`, then `trimaran gateway`.

Example: `trimaran gateway --host 0.0.0.0 --rate 20`""",
)
key_app = typer.Typer(no_args_is_help=True, help="Keys of callers: shown once, kept as digests.")
gateway_app.add_typer(key_app, name="key")
app.add_typer(gateway_app, name="gateway", rich_help_panel="Serve")

# Groups of options in the help; those without a group come first.
LIMITS, SAFETY, WATCHING = "Limits", "Who may call, and how", "Logs, traces and canaries"

KeysOption = Annotated[Path | None, typer.Option("--keys", help="The file of keys; by default in TRIMARAN_HOME.")]


@gateway_app.callback()
def gateway(
    context: typer.Context,
    repository: Annotated[
        str,
        typer.Option(
            "--repository", help="What Triton serves: a folder or s3://bucket/path; tokenizers are read there."
        ),
    ] = str(REPOSITORY),
    url: Annotated[
        list[str] | None,
        typer.Option("--url", help="Triton's host:port, again for more. A name may have many addresses."),
    ] = None,
    protocol: Annotated[Protocol, typer.Option("--protocol", help="How to talk to Triton.")] = "grpc",
    host: Annotated[str, typer.Option("--host", help="Where to listen; 0.0.0.0 for everywhere.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0 picks a free one.")] = 8080,
    workers: Annotated[
        int, typer.Option("--workers", min=1, max=64, help="Processes that share the port and the limits.")
    ] = 1,
    keys: KeysOption = None,
    no_auth: Annotated[bool, typer.Option("--no-auth", help="Let everybody call without a key.")] = False,
    open_metrics: Annotated[
        bool, typer.Option("--open-metrics", help="Show /metrics without a key.", rich_help_panel=WATCHING)
    ] = False,
    rate: Annotated[
        float | None, typer.Option("--rate", min=0.001, help="Requests a second of one caller.", rich_help_panel=LIMITS)
    ] = None,
    burst: Annotated[
        float, typer.Option("--burst", min=1, help="Requests at once of one caller.", rich_help_panel=LIMITS)
    ] = 50,
    text_rate: Annotated[
        float | None,
        typer.Option("--text-rate", min=0.001, help="Texts a second of one caller.", rich_help_panel=LIMITS),
    ] = None,
    text_burst: Annotated[
        float, typer.Option("--text-burst", min=1, help="Texts at once of one caller.", rich_help_panel=LIMITS)
    ] = 2048,
    in_flight: Annotated[
        int, typer.Option("--in-flight", min=1, help="Texts that each Triton has at a time.", rich_help_panel=LIMITS)
    ] = 64,
    queue: Annotated[
        int, typer.Option("--queue", min=0, help="Requests that may wait; more are refused.", rich_help_panel=LIMITS)
    ] = 512,
    queue_timeout: Annotated[
        float, typer.Option("--queue-timeout", min=0.001, help="Seconds to wait at most.", rich_help_panel=LIMITS)
    ] = 5.0,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.001, help="Seconds for one answer.", rich_help_panel=LIMITS)
    ] = 30.0,
    canary_interval: Annotated[
        float,
        typer.Option(
            "--canary-interval",
            min=0.1,
            help="Seconds between canaries, which /readyz goes by.",
            rich_help_panel=WATCHING,
        ),
    ] = 5.0,
    max_body: Annotated[
        int, typer.Option("--max-body", min=1024, help="Bytes of one body.", rich_help_panel=LIMITS)
    ] = 8 << 20,
    max_bodies: Annotated[
        int, typer.Option("--max-bodies", min=1024, help="Bytes of all bodies at a time.", rich_help_panel=LIMITS)
    ] = 256 << 20,
    max_texts: Annotated[
        int, typer.Option("--max-texts", min=1, max=MOST_TEXTS, help="Texts of one request.", rich_help_panel=LIMITS)
    ] = 2048,
    max_characters: Annotated[
        int, typer.Option("--max-characters", min=1, help="Characters of one text.", rich_help_panel=LIMITS)
    ] = 200_000,
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", min=1, help="Tokens of one request.", rich_help_panel=LIMITS)
    ] = 300_000,
    max_connections: Annotated[
        int, typer.Option("--max-connections", min=1, help="Open connections.", rich_help_panel=LIMITS)
    ] = 4096,
    cors: Annotated[
        list[str] | None,
        typer.Option("--cors", help="An origin whose pages may call; again for more.", rich_help_panel=SAFETY),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option("--tls-cert", help="Certificate chain, PEM.", rich_help_panel=SAFETY)
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", help="Its private key, PEM.", rich_help_panel=SAFETY)
    ] = None,
    access_log: Annotated[
        Path | None, typer.Option("--access-log", help="JSON lines; by default stderr.", rich_help_panel=WATCHING)
    ] = None,
    otlp: Annotated[
        str, typer.Option("--otlp", help="OpenTelemetry collector, such as http://host:4318.", rich_help_panel=WATCHING)
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Serve until Ctrl-C or SIGTERM, then answer what is in flight."""
    if context.invoked_subcommand is not None:
        return
    from trimaran.core.remote_repository import is_remote, repository_folder
    from trimaran.serving.gateway.server import serve
    from trimaran.serving.gateway.settings import GatewaySettings, RateLimit, RequestLimits, Timeouts

    settings = GatewaySettings(
        repository=Path(repository).absolute(),
        remote=repository if is_remote(repository) else "",
        triton_url=",".join(url or ()) or _running_url(repository, protocol),
        triton_protocol=protocol,
        host=host,
        port=port,
        keys=None if no_auth else _key_file(keys),
        open_metrics=open_metrics,
        limits=RequestLimits(
            body_bytes=max_body,
            all_bodies_bytes=max_bodies,
            texts=max_texts,
            characters=max_characters,
            tokens=max_tokens,
            connections=max_connections,
        ),
        timeouts=Timeouts(queue_s=queue_timeout, answer_s=timeout),
        rate=RateLimit(per_s=rate, burst=burst) if rate else None,
        text_rate=RateLimit(per_s=text_rate, burst=text_burst) if text_rate else None,
        workers=workers,
        in_flight=in_flight,
        queue=queue,
        canary_s=canary_interval,
        cors=tuple(cors or ()),
        tls_certificate=tls_cert,
        tls_key=tls_key,
        access_log=access_log,
        otlp_endpoint=otlp,
    )
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    if no_auth and not settings.is_loopback:
        typer.echo(f"Warning: without a key, everybody who reaches {host}:{port} may call.", err=True)

    def announce(chosen: int) -> None:
        scheme = "https" if tls_cert else "http"
        if as_json:
            emit({"url": f"{scheme}://{host}:{chosen}", "port": chosen, "triton": settings.triton_url})
            sys.stdout.flush()
        else:
            typer.echo(f"Gateway at {scheme}://{host}:{chosen} before Triton at {settings.triton_url}", err=True)

    with repository_folder(repository) as folder:
        serve(settings.model_copy(update={"repository": folder.absolute()}), on_ready=announce)


@key_app.command("add")
def add(
    name: Annotated[str, typer.Argument(help="Whose key it is; the access log shows it.")],
    keys: KeysOption = None,
    rate: Annotated[float | None, typer.Option("--rate", min=0.001, help="Requests a second, for this key.")] = None,
    burst: Annotated[float, typer.Option("--burst", min=1, help="Requests at once, for this key.")] = 50,
    text_rate: Annotated[
        float | None, typer.Option("--text-rate", min=0.001, help="Texts a second, for this key.")
    ] = None,
    text_burst: Annotated[float, typer.Option("--text-burst", min=1, help="Texts at once, for this key.")] = 2048,
    as_json: JsonOption = False,
) -> None:
    """Make a key and print it. It is printed only once, because only its digest is kept.

    Example: `trimaran gateway key add search-team --rate 20`
    """
    from trimaran.serving.gateway.keys import add_key
    from trimaran.serving.gateway.settings import RateLimit

    made = add_key(
        _keys(keys),
        name,
        rate=RateLimit(per_s=rate, burst=burst) if rate else None,
        text_rate=RateLimit(per_s=text_rate, burst=text_burst) if text_rate else None,
    )
    if as_json:
        emit({"name": name, "key": made})
    else:
        typer.echo(made)


@key_app.command("list")
def show(keys: KeysOption = None, as_json: JsonOption = False) -> None:
    """List the names of the keys.

    Example: `trimaran gateway key list`
    """
    from trimaran.serving.gateway.keys import read_keys

    known = read_keys(_keys(keys))
    if as_json:
        emit({"keys": [key.model_dump(mode="json", exclude={"sha256"}) for key in known]})
    else:
        typer.echo("\n".join(f"{key.name}\t{key.created}" for key in known) or "There is no key.")


@key_app.command("remove")
def remove(name: Annotated[str, typer.Argument(help="The key's name.")], keys: KeysOption = None) -> None:
    """Revoke a key. Running gateways refuse it at once.

    Example: `trimaran gateway key remove search-team`
    """
    from trimaran.serving.gateway.keys import remove_key

    remove_key(_keys(keys), name)
    typer.echo(f"Removed {name}.")


def _keys(file: Path | None) -> Path:
    from trimaran.serving.gateway.keys import default_key_file

    return (file or default_key_file()).absolute()


def _key_file(file: Path | None) -> Path:
    from trimaran.serving.gateway.keys import read_keys

    path = _keys(file)
    if not read_keys(path):
        raise UsageError(
            f"There is no key in {path}, so nobody could call.",
            hint="`trimaran gateway key add NAME` makes one; --no-auth lets everybody call.",
        )
    return path


def _running_url(repository: str, protocol: Protocol) -> str:
    from trimaran.core.remote_repository import is_remote
    from trimaran.pipeline.live import any_url

    if is_remote(repository):
        raise UsageError(f"Which Triton serves {repository}?", hint="Give its --url, such as triton:8001.")
    if url := any_url(Path(repository), protocol):
        return url
    raise UsageError(
        f"No `trimaran serve` of yours serves {repository}.",
        hint=f"`trimaran serve {repository} --detach` starts one, or give Triton's --url.",
    )
