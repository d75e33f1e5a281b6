"""`trimaran tune`: how a model is served best here, by a short measured search."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trimaran.cli.app import app
from trimaran.cli.options import (
    REPOSITORY,
    JsonOption,
    NameArgument,
    ReportOption,
    RepositoryOption,
    progress_on_stderr,
)
from trimaran.cli.output import emit
from trimaran.core.choices import TuneObjective


@app.command(rich_help_panel="Serve")
def tune(
    name: NameArgument,
    repository: RepositoryOption = REPOSITORY,
    objective: Annotated[
        TuneObjective,
        typer.Option(
            "--objective",
            help="What to look for: the median of one caller, the answers a second of eight, or the product of both.",
        ),
    ] = "balanced",
    budget_s: Annotated[
        float, typer.Option("--budget", min=1.0, help="Seconds after which no further measurement begins.")
    ] = 120.0,
    report: ReportOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Measure and report, but leave the repository.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Find how a deployed model is served best on this machine, and serve it so: processes, threads, batching delay,
    rows a call.

    Every setting is served by a real Triton aside, must give the answers of the golden bundle, and is asked by one
    caller and by eight. Losing settings are stopped early. The choice goes into `config.pbtxt` and `serving.json` with
    its reason, and running servers take it over without a failed request. Run it on a quiet machine.

    Example: `trimaran tune minilm --objective throughput --budget 60`
    """
    from trimaran.pipeline.tune.render import summary, write_tuning
    from trimaran.pipeline.tune.run import apply
    from trimaran.pipeline.tune.run import tune as search

    progress = progress_on_stderr()
    tuning = search(repository, name, objective=objective, budget_s=budget_s, progress=progress)
    paths = write_tuning(tuning, report or Path("reports") / name)
    switched = () if dry_run else apply(repository, tuning, progress=progress)
    if as_json:
        emit(
            {
                "tuning": tuning.model_dump(mode="json", by_alias=True),
                "applied": not dry_run,
                "servers": list(switched),
                "report": {kind: str(path) for kind, path in paths.items()},
            }
        )
        return
    typer.echo(summary(tuning))
    typer.echo(f"{'Not written (--dry-run)' if dry_run else 'Written into the repository'}. Report: {paths['html']}")
