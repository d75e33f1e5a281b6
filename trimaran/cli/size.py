"""`trimaran size`: how many replicas a load needs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from trimaran.cli.app import app
from trimaran.cli.options import REPOSITORY, JsonOption, NameArgument, RepositoryOption
from trimaran.cli.output import emit
from trimaran.core.errors import UsageError

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s)")


@app.command("size", rich_help_panel="Serve")
def size_command(
    name: NameArgument,
    rate: Annotated[float, typer.Option("--rate", min=0.01, help="Texts a second, each a request of its own.")],
    p99: Annotated[str, typer.Option("--p99", help="The time that 99 of 100 requests may take, such as 50ms.")],
    texts: Annotated[
        Path | None, typer.Option("--texts", help="Texts to measure with, one a line; by default shipped ones.")
    ] = None,
    price: Annotated[float | None, typer.Option("--price", min=0, help="Price of one replica for an hour.")] = None,
    repository: RepositoryOption = REPOSITORY,
    as_json: JsonOption = False,
) -> None:
    """Predict how many replicas answer a load in time: batches are measured here, arrivals are simulated.

    Uses the running server of the repository, or starts one. Measure on a machine that is idle and like those that
    will serve. The result is a prediction.

    Example: `trimaran size minilm --rate 500 --p99 50ms --price 0.20`
    """
    import contextlib

    from trimaran.core.corpus import read_texts, shipped_texts
    from trimaran.model_repository.versions import model_versions
    from trimaran.pipeline.live import any_url
    from trimaran.pipeline.size import size
    from trimaran.serving.client import Client
    from trimaran.serving.triton.server import launch

    duration = _DURATION.fullmatch(p99.strip())
    if duration is None:
        raise UsageError(f"--p99 wants a time, found {p99!r}.", hint="Write it as 50ms or 0.2s.")
    p99_ms = float(duration[1]) * (1000 if duration[2] == "s" else 1)
    model_versions(repository, name)
    chosen = read_texts(texts) if texts else shipped_texts("calibration")
    with contextlib.ExitStack() as stack:
        url = any_url(repository, "grpc") or stack.enter_context(launch(repository, drain=False)).grpc_url
        client = stack.enter_context(Client(url))
        sized = size(repository, name, client, chosen, rate=rate, p99_ms=p99_ms, price=price)
    if as_json:
        emit(sized.model_dump(mode="json"))
        return
    typer.echo(f"{sized.replicas} replicas keep p99 <= {p99_ms:g} ms at {rate:g} texts a second (predicted).")
    for load in sized.predicted:
        typer.echo(f"  {load.arrivals}: p50 {load.p50_ms:.1f} ms, p99 {load.p99_ms:.1f} ms, {load.busy:.0%} busy")
    for load in sized.when_one_dies:
        typer.echo(f"  when one dies, {load.arrivals}: p50 {load.p50_ms:.1f} ms, p99 {load.p99_ms:.1f} ms")
    typer.echo(f"  {sized.replicas_with_spare} replicas keep it when one dies.")
    typer.echo(f"  one replica: {sized.most_texts_per_s:.0f} texts/s at most, {sized.texts_per_cpu_s:.0f} for each CPU")
    if sized.cost_per_hour is not None:
        typer.echo(f"  cost: {sized.cost_per_hour:.2f} an hour, {sized.cost_per_million_texts:.3f} a million texts")
