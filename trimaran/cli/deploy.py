"""`trimaran deploy`: the whole line as one command."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trimaran.cli.app import app
from trimaran.cli.options import (
    THE_CANDIDATES,
    THE_MODEL,
    THE_PROOF,
    THE_RUN,
    BatchOption,
    BudgetOption,
    BusyOkOption,
    CandidatesOption,
    DataOption,
    DimensionsOption,
    ExporterOption,
    FamilyOption,
    FidelityOption,
    ForceOption,
    GateOption,
    HubOption,
    JsonOption,
    LayerOption,
    MetricOption,
    ModelArgument,
    ModelOption,
    ModuleOption,
    NameOption,
    NormalizeOption,
    PoolingOption,
    ReportOption,
    SequenceOption,
    StoreOption,
    TaskOption,
    ThreadsOption,
    WaitQuietOption,
    WhiteningOption,
    deploy_config_of,
    open_store,
    progress_on_stderr,
    typed_command,
)
from trimaran.cli.output import emit, print_prepared, print_summary
from trimaran.core.choices import Objective

if TYPE_CHECKING:
    from trimaran.core.config import DeployConfig
    from trimaran.core.store import Store
    from trimaran.model_repository.layout import Deployment
    from trimaran.pipeline.line import DeployResult
    from trimaran.pipeline.plan import DeployPlan


@app.command(rich_help_panel="The whole line")
def deploy(
    context: typer.Context,
    folder: ModelArgument = None,
    model: ModelOption = None,
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", help="The model repository to add to.", show_default="model_repository"),
    ] = None,
    name: NameOption = None,
    fidelity: FidelityOption = "strict",
    quick: Annotated[
        bool | None,
        typer.Option("--quick", help="Few candidates, no INT8 search and a short race; proven all the same."),
    ] = None,
    task: TaskOption = None,
    objective: Annotated[
        Objective | None,
        typer.Option(
            "--objective",
            help="What the fastest means.",
            show_default="latency",
            rich_help_panel=THE_CANDIDATES,
        ),
    ] = None,
    batch: BatchOption = None,
    sequence: SequenceOption = None,
    threads: ThreadsOption = None,
    gates: GateOption = None,
    candidates: CandidatesOption = None,
    calibration: Annotated[
        str | None,
        typer.Option(
            "--calibration",
            help="Texts for INT8: .txt (one a line), .jsonl, .tsv or .parquet.",
            rich_help_panel=THE_CANDIDATES,
        ),
    ] = None,
    budget: BudgetOption = None,
    judging: Annotated[
        str | None,
        typer.Option("--judging", help="Text file, one a line, to judge fidelity on.", rich_help_panel=THE_PROOF),
    ] = None,
    teacher: Annotated[
        str | None,
        typer.Option(
            "--teacher",
            help="The model that this one is a student of (`trimaran shrink`): candidates must also keep the level "
            "`distilled` against its answers.",
            rich_help_panel=THE_PROOF,
        ),
    ] = None,
    data: DataOption = None,
    metric: MetricOption = None,
    report: ReportOption = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", help="TOML file with the same keys as the flags.", rich_help_panel=THE_RUN),
    ] = None,
    family: FamilyOption = None,
    module: ModuleOption = None,
    pooling: PoolingOption = None,
    layers: LayerOption = None,
    dimensions: DimensionsOption = None,
    whitening: WhiteningOption = None,
    normalize: NormalizeOption = None,
    exporter: ExporterOption = None,
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            help="Where it is proven and timed: auto, cpu, cuda or cuda:N. auto takes a GPU that can build plans.",
            rich_help_panel=THE_CANDIDATES,
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            help="Compute capabilities of GPUs that are not here, such as 8.6,8.9,12.0: prepare the model for them.",
            rich_help_panel=THE_CANDIDATES,
        ),
    ] = None,
    hub: HubOption = None,
    revision: Annotated[
        str | None, typer.Option("--revision", help="Revision of a hub id.", rich_help_panel=THE_MODEL)
    ] = None,
    allow_partial_fusion: Annotated[
        bool | None,
        typer.Option(
            "--allow-partial-fusion",
            help="Record a fusion shortfall instead of failing.",
            rich_help_panel=THE_CANDIDATES,
        ),
    ] = None,
    serve_check: Annotated[
        bool | None,
        typer.Option(
            "--serve-check/--no-serve-check",
            help="Serve the winner once and check its answers.",
            rich_help_panel=THE_PROOF,
        ),
    ] = None,
    shadow_graph: Annotated[
        bool | None,
        typer.Option(
            "--shadow-graph",
            help="Put the fp32 graph into the version too, for `serve --shadow` on other machines.",
            rich_help_panel=THE_PROOF,
        ),
    ] = None,
    store: StoreOption = None,
    wait_quiet: WaitQuietOption = False,
    busy_ok: BusyOkOption = False,
    force: ForceOption = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan and stop.", rich_help_panel=THE_RUN)
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Export a model, make faster versions, prove and measure them, and add the fastest proven one to a repository.

    Example: `trimaran deploy ./my-model --fidelity balanced`
    """
    from trimaran.pipeline.line import deploy as walk
    from trimaran.pipeline.plan import plan_deployment

    settings = deploy_config_of(context, config)
    if settings.target:
        _prepare(settings, open_store(store, force=settings.force), dry_run, as_json)
        return
    if dry_run:
        _print_plan(plan_deployment(settings), as_json)
        return
    result = walk(
        settings,
        store=open_store(store, force=settings.force),
        progress=progress_on_stderr(),
        command=typed_command(),
    )
    if as_json:
        emit(result.facts())
    else:
        _print_result(result)


def _prepare(settings: DeployConfig, store: Store, dry_run: bool, as_json: bool) -> None:
    from trimaran.pipeline.prepare import plan_preparation, prepare

    if dry_run:
        _print_plan(plan_preparation(settings), as_json)
        return
    result = prepare(settings, store=store, progress=progress_on_stderr(), command=typed_command())
    if as_json:
        emit(result.facts())
        return
    print_prepared(result.prepared)
    deployment = result.deployment
    typer.echo(f"{'Report':11} {result.report_paths['md']}", err=True)
    typer.echo(f"{'Repository':11} {deployment.repository} ({deployment.name}, version {deployment.version})", err=True)


def _print_plan(plan: DeployPlan, as_json: bool) -> None:
    facts = plan.facts()
    if as_json:
        emit(facts)
        return
    notes = facts.pop("notes")
    for key, value in facts.items():
        if value or key != "prompts":
            typer.echo(f"{key:12} {', '.join(value) if isinstance(value, list) else value}")
    for note in notes:
        typer.echo(f"{'note':12} {note}")


def _promotion(deployment: Deployment) -> dict[str, str]:
    """A later version is served only when it is promoted."""
    from trimaran.model_repository.versions import model_versions

    if deployment.version in model_versions(deployment.repository, deployment.name).served:
        return {}
    words = ["trimaran", "promote", deployment.name, str(deployment.version), "-r", str(deployment.repository)]
    return {"Promote": shlex.join(words)}


def _serve_command(deployment: Deployment) -> str:
    return shlex.join(["trimaran", "serve", str(deployment.repository), "--detach"])


def _print_result(result: DeployResult) -> None:
    print_summary(result.report)
    deployment = result.deployment
    if result.unchanged:
        typer.echo(
            f"Unchanged: version {deployment.version} was made by the same deployment. --force repeats it.", err=True
        )
    lines = {
        "Report": result.report_paths["html"],
        "Repository": f"{deployment.repository} ({deployment.name}, version {deployment.version})",
        **_promotion(deployment),
        **({"Served by": ", ".join(result.servers)} if result.servers else {"Serve": _serve_command(deployment)}),
        "Ask": result.example_query(),
    }
    for key, value in lines.items():
        typer.echo(f"{key:11} {value}", err=True)
