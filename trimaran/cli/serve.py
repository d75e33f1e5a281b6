"""Commands around a model repository: lay out, check, serve, stop, ask."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trimaran.cli import app
from trimaran.cli.deploy import JsonOption, StoreOption, ThreadsOption, emit, shelf_at
from trimaran.serving.container.image import IMAGE

if TYPE_CHECKING:
    from trimaran.serving.triton.daemon import Running

repository_app = typer.Typer(no_args_is_help=True, help="Lay out and check Triton model repositories.")
app.add_typer(repository_app, name="repository", rich_help_panel="Serve")

RepositoryArgument = Annotated[Path, typer.Argument(help="The model repository.")]
PortHelp = "Loopback port; a free one near the default is not guessed: a port in use is an error."


class Rows(StrEnum):
    padded = "padded"
    packed = "packed"
    rounded = "rounded"
    equal_length = "equal-length"
    alone = "alone"


class Protocol(StrEnum):
    grpc = "grpc"
    http = "http"


@repository_app.command("lay-out")
def lay_out_command(
    artifact: Annotated[str, typer.Argument(help="A candidate: folder, name in the store, or digest.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The model repository to add to.")] = Path(
        "model_repository"
    ),
    name: Annotated[str | None, typer.Option("--name", help="What callers will call; by default the model's.")] = None,
    rows: Annotated[
        Rows, typer.Option("--rows", help="How rows may share a call; `alone` is safe for every engine.")
    ] = Rows.alone,
    separate: Annotated[
        bool | None,
        typer.Option("--separate/--together", help="The engine as a model of its own; by default so on a GPU only."),
    ] = None,
    threads: ThreadsOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add an artifact to a repository as the next version of a model."""
    from trimaran.core.environment import usable_cores
    from trimaran.model_repository.layout import lay_out

    found = shelf_at(store).open(artifact)
    deployment = lay_out(
        found,
        repository=output,
        name=name or found.name,
        rows=rows.value,
        threads=threads or usable_cores(),
        separate=separate,
    )
    if as_json:
        emit(deployment.model_dump(mode="json"))
    else:
        typer.echo(f"{deployment.repository / deployment.name / str(deployment.version)}")


@repository_app.command("check")
def check_command(repository: RepositoryArgument = Path("model_repository"), as_json: JsonOption = False) -> None:
    """Name every problem of a repository at once, each with its place and its remedy; exit 4 when there is one."""
    from trimaran.model_repository.check import problems, require_sound

    found = problems(repository)
    if as_json:
        emit({"repository": str(repository), "problems": [problem.model_dump(mode="json") for problem in found]})
    require_sound(repository)
    if not as_json:
        typer.echo(f"{repository}: no problem found.")


@app.command(rich_help_panel="Serve")
def serve(
    repository: RepositoryArgument = Path("model_repository"),
    http_port: Annotated[int | None, typer.Option("--http-port", min=1, max=65535, help=PortHelp)] = 8000,
    grpc_port: Annotated[int | None, typer.Option("--grpc-port", min=1, max=65535, help=PortHelp)] = 8001,
    metrics_port: Annotated[int | None, typer.Option("--metrics-port", min=1, max=65535, help=PortHelp)] = 8002,
    free_ports: Annotated[bool, typer.Option("--free-ports", help="Pick three free ports instead.")] = False,
    log: Annotated[Path | None, typer.Option("--log", help="Triton's log file.")] = None,
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
    otlp: Annotated[str, typer.Option("--otlp", help="OpenTelemetry collector, such as http://host:4318.")] = "",
    detach: Annotated[bool, typer.Option("--detach", help="Return when it is ready; `trimaran stop` ends it.")] = False,
    docker: Annotated[bool, typer.Option("--docker", help="Run the official container instead (deploy/).")] = False,
    image: Annotated[str, typer.Option("--image", help="With --docker: the image.")] = IMAGE,
    gpu: Annotated[
        bool | None, typer.Option("--gpu/--no-gpu", help="With --docker; by default as models want.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With --docker: print the command only.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Serve a repository with Triton on the loopback; Ctrl-C answers the requests in flight and ends it.

    Each model is sent a canary every second: one that stops answering is loaded again, a server that dies is started
    again on the same ports.
    """
    import logging

    from trimaran.cli.kubernetes import serve_in_container
    from trimaran.serving.triton.daemon import serve_detached, serve_forever
    from trimaran.serving.triton.watchdog import Care

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    if docker:
        outer = {"http": http_port, "grpc": grpc_port, "metrics": metrics_port}
        serve_in_container(repository, outer, image=image, gpu=gpu, dry_run=dry_run, as_json=as_json)
        return
    ports = {"http_port": http_port, "grpc_port": grpc_port, "metrics_port": metrics_port}
    settings: dict[str, Any] = {
        **(dict.fromkeys(ports) if free_ports else ports),
        "log_file": log,
        "everything": tensors,
        "cpus": cpus,
        "otlp": otlp,
        "care": Care(hang_s=hang_timeout_s, memory_limit_bytes=memory_limit << 20 if memory_limit else None),
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
    """Stop servers that `trimaran serve` started, answering the requests in flight first."""
    from trimaran.serving.triton.daemon import stop as end

    ended = end(repository)
    if as_json:
        emit({"stopped": [str(state.repository) for state in ended]})
    else:
        typer.echo("\n".join(f"Stopped {state.repository}." for state in ended) or "No server was running.")


@app.command(rich_help_panel="Serve")
def query(
    name: Annotated[str, typer.Argument(help="The model to call.")],
    texts: Annotated[list[str], typer.Argument(help="What to ask; what is wanted depends on the model's task.")],
    url: Annotated[str, typer.Option("--url", help="host:port; by default Triton's own ports.")] = "",
    protocol: Annotated[Protocol, typer.Option("--protocol", help="How to talk to the server.")] = Protocol.grpc,
    timeout_s: Annotated[float, typer.Option("--timeout", min=0.001, help="Seconds all of it may take.")] = 60.0,
    labels: Annotated[list[str] | None, typer.Option("--label", help="For a zero-shot model; again for more.")] = None,
    prompt: Annotated[
        str | None, typer.Option("--prompt", help="For an embedding model: one of its prompts, by name.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Ask a served model and print its answers.

    Question answering: `NAME "question" "context"`. For several, type each as `"question ||| context"`.

    Reranking: `NAME "query" "document" "document" …`

    Zero-shot classification: `NAME "text" … --label weather --label money`

    All others: `NAME "text" "text" …`. Models for embedding, feature extraction and text classification read
    `"first ||| second"` as a pair.
    """
    from trimaran.serving.client import Client
    from trimaran.serving.client.asking import ask

    with Client(url, protocol=protocol.value, timeout_s=timeout_s) as client:
        outputs = client.model(name).outputs
        asked, answers = ask(client, name, texts, labels or [], prompt=prompt)
    if as_json:
        emit({"name": name, "answers": _plain(answers)})
        return
    for text, answer in zip(asked, answers, strict=True):
        if "EMBEDDING" in outputs:
            said = f"{len(answer)} numbers: {', '.join(f'{value:.4f}' for value in answer[:6])}, …"
        elif "SCORES" in outputs:
            said = ", ".join(f"{label} {score:.4f}" for label, score in answer)
        else:
            said = json.dumps(_plain(answer), ensure_ascii=False)
        typer.echo(f"{text}\t{said}")


def _plain(answer: Any) -> Any:
    """Numbers, strings, lists and objects, as JSON has them."""
    if hasattr(answer, "tolist"):
        return answer.tolist()
    if hasattr(answer, "_asdict"):
        return {key: _plain(value) for key, value in answer._asdict().items()}
    return [_plain(item) for item in answer] if isinstance(answer, (list, tuple)) else answer


def _announce(running: Running, as_json: bool) -> None:
    if as_json:
        emit(running.model_dump(mode="json"))
        return
    typer.echo(f"Serving {', '.join(running.models)} from {running.repository}", err=True)
    typer.echo(
        f"http 127.0.0.1:{running.http_port}   grpc 127.0.0.1:{running.grpc_port}   "
        f"metrics 127.0.0.1:{running.metrics_port}   log {running.log}",
        err=True,
    )
