"""Commands that make, prove and measure single artifacts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from trimaran.cli import app
from trimaran.cli.deploy import (
    BatchOption,
    BudgetOption,
    DataOption,
    DimensionsOption,
    ExporterOption,
    FamilyOption,
    ForceOption,
    HubOption,
    JsonOption,
    LayerOption,
    Level,
    MetricOption,
    ModelOption,
    ModuleOption,
    NormalizeOption,
    PoolingOption,
    SequenceOption,
    StoreOption,
    TaskOption,
    ThreadsOption,
    WhiteningOption,
    emit,
    emit_artifact,
    progress_now,
    shelf_at,
)


@app.command(rich_help_panel="Stages")
def export(
    model: ModelOption = None,
    task: TaskOption = None,
    batch: BatchOption = None,
    sequence: SequenceOption = None,
    family: FamilyOption = None,
    module: ModuleOption = None,
    pooling: PoolingOption = None,
    layer: LayerOption = None,
    dimensions: DimensionsOption = None,
    whitening: WhiteningOption = None,
    normalize: NormalizeOption = None,
    extras: Annotated[
        list[str] | None, typer.Option("--extra", help="For feature-extraction: hidden_states, attentions.")
    ] = None,
    top_k: Annotated[int | None, typer.Option("--top-k", min=1, help="For fill-mask: tokens for each mask.")] = None,
    exporter: ExporterOption = None,
    hub: HubOption = None,
    atol: Annotated[float, typer.Option("--atol", help="Largest |Δ| to eager PyTorch.")] = 1e-5,
    store: StoreOption = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Export a trained model to one ONNX graph, proven equal to eager PyTorch."""
    from trimaran.core.config import deploy_config
    from trimaran.pipeline.assumptions import assumptions
    from trimaran.pipeline.exporting import export_model
    from trimaran.pipeline.plan import find_model

    settings = deploy_config(
        {
            "model": model,
            "task": task,
            "batch": batch,
            "sequence": sequence,
            "family": family,
            "module": module,
            "pooling": pooling,
            "layers": tuple(layer) if layer else None,
            "dimensions": dimensions,
            "whitening": whitening,
            "normalize": normalize,
            "extras": tuple(extras) if extras else None,
            "top_k": top_k,
            "exporter": exporter,
            "hub": hub,
        }
    )
    ref, progress = find_model(settings), progress_now()
    profile = settings.profile_for(ref)
    for note in assumptions(settings, ref, profile):
        progress.note(note)
    _, graph = export_model(
        ref,
        profile,
        store=shelf_at(store, force=force),
        progress=progress,
        atol=atol,
        exporter=settings.exporter,
    )
    emit_artifact(graph, as_json)


@app.command(rich_help_panel="Stages")
def whiten(
    model: ModelOption = None,
    corpus: Annotated[Path, typer.Option("--corpus", help="Text file, one a line; read as a stream.")] = Path(
        "texts.txt"
    ),
    dimensions: DimensionsOption = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="The whitening to write.")] = Path(
        "whitening.safetensors"
    ),
    pooling: PoolingOption = None,
    layer: LayerOption = None,
    family: FamilyOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compute a whitening from a corpus, for `--whitening` of `export` and `deploy`."""
    from trimaran.core.config import deploy_config
    from trimaran.export.reference import reference
    from trimaran.export.whiten import lines_of
    from trimaran.export.whiten import whiten as compute
    from trimaran.pipeline.plan import find_model

    settings = deploy_config(
        {"model": model, "family": family, "pooling": pooling, "layers": tuple(layer) if layer else None}
    )
    ref, progress = find_model(settings), progress_now()
    eager = reference(ref, settings.profile_for(ref), store=shelf_at(store), progress=progress)
    path = compute(eager, lines_of(corpus), output, dimensions=dimensions, progress=progress)
    if as_json:
        emit({"whitening": str(path)})
    else:
        typer.echo(str(path))


@app.command(rich_help_panel="Stages")
def optimize(
    artifact: Annotated[str, typer.Argument(help="An exported artifact: folder, name or digest.")],
    allow_partial_fusion: Annotated[bool, typer.Option("--allow-partial-fusion", help="Record a shortfall.")] = False,
    store: StoreOption = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Fuse attention, GELU and layer norms for ONNX Runtime; fewer fused nodes than expected is a failure."""
    from trimaran.quantize.optimize import optimize as fuse

    shelf = shelf_at(store, force=force)
    fused = fuse(shelf.open(artifact), store=shelf, progress=progress_now(), allow_partial=allow_partial_fusion)
    emit_artifact(fused, as_json)


@app.command(rich_help_panel="Stages")
def quantize(
    artifact: Annotated[str, typer.Argument(help="An exported or optimised artifact: folder, name or digest.")],
    to: Annotated[str, typer.Option("--to", help="The candidate to make, such as openvino-int8-static.")],
    calibration: Annotated[
        Path | None, typer.Option("--calibration", help="Texts: .txt (one a line), .jsonl, .tsv or .parquet.")
    ] = None,
    fidelity: Annotated[
        Level, typer.Option("--fidelity", help="The gates that a searched candidate is made to keep.")
    ] = Level.strict,
    gate: Annotated[
        list[str] | None, typer.Option("--gate", help="Override one limit: METRIC=NUMBER. May be repeated.")
    ] = None,
    budget: BudgetOption = None,
    data: DataOption = None,
    metric: MetricOption = None,
    half_outputs: Annotated[
        bool, typer.Option("--half-outputs", help="Of onnx-fp16: answers in FP16 too; by default they stay FP32.")
    ] = False,
    threads: ThreadsOption = None,
    store: StoreOption = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Make one candidate (another precision or engine) from an exported graph."""
    from trimaran.core.config import BUDGET_S, gates_from_flags
    from trimaran.core.errors import UsageError
    from trimaran.pipeline.making import make_one_candidate

    if bool(data) != bool(metric):
        raise UsageError("--data and --metric belong together.", hint="Such as --data pairs.tsv --metric spearman.")

    made = make_one_candidate(
        artifact,
        to,
        calibration,
        threads,
        fidelity=fidelity.value,
        gates=gates_from_flags(gate) if gate else None,
        budget_s=budget or BUDGET_S,
        data=Path(data) if data else None,
        metric=metric,
        half_outputs=half_outputs,
        store=shelf_at(store, force=force),
        progress=progress_now(),
    )
    emit_artifact(made, as_json)


@app.command("build-engine", rich_help_panel="Stages")
def build_engine_command(
    artifact: Annotated[str, typer.Argument(help="An ONNX artifact, such as onnx-fp16: folder, name or digest.")],
    runtime: Annotated[
        str, typer.Option("--runtime", help="tensorrt (on the GPU machine) or tensorrt-rtx (needs no GPU).")
    ] = "tensorrt",
    compute_capability: Annotated[
        str | None, typer.Option("--compute-capability", help="For tensorrt-rtx: such as 8.6,8.9,12.0.")
    ] = None,
    split: Annotated[
        int | None, typer.Option("--split", help="Two profiles: sequences up to this length, and beyond.")
    ] = None,
    timing_cache: Annotated[Path | None, typer.Option("--timing-cache", help="File to read and write.")] = None,
    weight_streaming: Annotated[bool, typer.Option("--weight-streaming", help="Stream weights from host.")] = False,
    workspace_mb: Annotated[int | None, typer.Option("--workspace", help="Builder's scratch memory in MB.")] = None,
    version_compatible: Annotated[bool, typer.Option("--version-compatible", help="For newer runtimes too.")] = False,
    hardware_compatible: Annotated[
        str, typer.Option("--hardware-compatible", help="NONE, AMPERE_PLUS or SAME_COMPUTE_CAPABILITY.")
    ] = "NONE",
    allow_shortfall: Annotated[
        bool, typer.Option("--allow-shortfall", help="Record kernels that fell short instead of failing.")
    ] = False,
    store: StoreOption = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Build a TensorRT engine and count its kernels; precision lives in the graph, so none is asked for here."""
    from trimaran.core.errors import UsageError
    from trimaran.quantize.tensorrt.engine import build_engine, short_and_long

    runtimes: dict[str, Any] = {"tensorrt": "tensorrt", "tensorrt-rtx": "tensorrt_rtx"}
    if runtime not in runtimes:
        raise UsageError(f"Unknown runtime {runtime!r}.", hint=f"Known: {', '.join(runtimes)}.")
    compatible: Any = hardware_compatible
    if compatible not in ("NONE", "AMPERE_PLUS", "SAME_COMPUTE_CAPABILITY"):
        raise UsageError(f"Unknown hardware compatibility {compatible!r}.")
    shelf = shelf_at(store, force=force)
    parent = shelf.open(artifact)
    built = build_engine(
        parent,
        runtime=runtimes[runtime],
        compute_capabilities=tuple(part.strip() for part in (compute_capability or "").split(",") if part.strip()),
        profiles=short_and_long(parent.profile, split=split) if split else (),
        timing_cache=timing_cache,
        weight_streaming=weight_streaming,
        workspace_bytes=workspace_mb << 20 if workspace_mb else None,
        version_compatible=version_compatible,
        hardware_compatible=compatible,
        allow_shortfall=allow_shortfall,
        store=shelf,
        progress=progress_now(),
    )
    emit_artifact(built, as_json)
