"""`trimaran optimize`, `quantize` and `build-engine`: faster versions of an exported graph."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from trimaran.cli.app import app
from trimaran.cli.options import (
    BudgetOption,
    DataOption,
    FidelityOption,
    FolderOption,
    ForceOption,
    GateOption,
    JsonOption,
    LayoutOption,
    MetricOption,
    StoreOption,
    ThreadsOption,
    open_store,
    progress_on_stderr,
)
from trimaran.cli.output import emit_artifact
from trimaran.core.choices import BUDGET_S, HardwareCompatible


@app.command(rich_help_panel="Stages")
def optimize(
    artifact: Annotated[
        str, typer.Argument(help="An exported graph: folder, name, digest, or an .onnx file with config and tokenizer.")
    ],
    output: FolderOption = None,
    layout: LayoutOption = "plain",
    allow_partial_fusion: Annotated[
        bool, typer.Option("--allow-partial-fusion", help="Record missing fusions instead of failing.")
    ] = False,
    store: StoreOption = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Fuse attention, GELU and layer norms for ONNX Runtime; fewer fused nodes than expected is a failure.

    Example: `trimaran optimize onnx-2f1c -o fused`
    """
    from trimaran.pipeline.exporting import open_graph
    from trimaran.pipeline.plain_folder import require_output_folder
    from trimaran.quantize.optimize import optimize as fuse

    require_output_folder(output, layout)
    artifacts = open_store(store, force=force)
    progress = progress_on_stderr()
    graph = open_graph(artifact, store=artifacts, progress=progress)
    fused = fuse(graph, store=artifacts, progress=progress, allow_partial=allow_partial_fusion)
    emit_artifact(fused, as_json, folder=output, store=artifacts, parent=artifact, layout=layout)


@app.command(rich_help_panel="Stages")
def quantize(
    artifact: Annotated[
        str,
        typer.Argument(
            help="An exported or optimised graph: folder, name, digest, or an .onnx file with its tokenizer."
        ),
    ],
    to: Annotated[str, typer.Option("--to", help="The candidate to make, such as openvino-int8-static.")],
    output: FolderOption = None,
    layout: LayoutOption = "plain",
    calibration: Annotated[
        Path | None, typer.Option("--calibration", help="Texts: .txt (one a line), .jsonl, .tsv or .parquet.")
    ] = None,
    fidelity: FidelityOption = "strict",
    gates: GateOption = None,
    budget: BudgetOption = BUDGET_S,
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
    """Make one candidate (another precision or engine) from an exported graph.

    Example: `trimaran quantize exported --to openvino-int8-mixed -o int8`
    """
    from trimaran.core.config import gates_from_flags
    from trimaran.pipeline.making import make_one_candidate
    from trimaran.pipeline.plain_folder import require_output_folder

    require_output_folder(output, layout)
    artifacts = open_store(store, force=force)
    made = make_one_candidate(
        artifact,
        to,
        calibration,
        threads,
        fidelity=fidelity,
        gates=gates_from_flags(gates or ()),
        budget_s=budget or BUDGET_S,
        data=Path(data) if data else None,
        metric=metric,
        half_outputs=half_outputs,
        store=artifacts,
        progress=progress_on_stderr(),
    )
    emit_artifact(made, as_json, folder=output, store=artifacts, parent=artifact, layout=layout)


@app.command("build-engine", rich_help_panel="Stages")
def build_engine_command(
    artifact: Annotated[
        str,
        typer.Argument(
            help="An ONNX graph, such as onnx-fp16: folder, name, digest, or an .onnx file with its tokenizer."
        ),
    ],
    output: FolderOption = None,
    runtime: Annotated[
        Literal["tensorrt", "tensorrt-rtx"],
        typer.Option("--runtime", help="tensorrt (on the GPU machine) or tensorrt-rtx (needs no GPU)."),
    ] = "tensorrt",
    compute_capability: Annotated[
        str, typer.Option("--compute-capability", help="For tensorrt-rtx: such as 8.6,8.9,12.0.")
    ] = "",
    split: Annotated[
        int | None, typer.Option("--split", help="Two profiles: sequences up to this length, and beyond.")
    ] = None,
    timing_cache: Annotated[Path | None, typer.Option("--timing-cache", help="File to read and write.")] = None,
    weight_streaming: Annotated[bool, typer.Option("--weight-streaming", help="Stream weights from host.")] = False,
    workspace_mb: Annotated[int | None, typer.Option("--workspace", help="Builder's scratch memory in MB.")] = None,
    hardware_compatible: Annotated[
        HardwareCompatible,
        typer.Option(
            "--hardware-compatible",
            metavar="<str>",
            help="GPUs that the engine shall run on too: NONE, AMPERE_PLUS or SAME_COMPUTE_CAPABILITY.",
        ),
    ] = "NONE",
    allow_shortfall: Annotated[
        bool, typer.Option("--allow-shortfall", help="Record kernels that fell short instead of failing.")
    ] = False,
    store: StoreOption = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Build a TensorRT engine and count its kernels; precision lives in the graph, so none is asked for here.

    Example: `trimaran build-engine onnx-fp16-9ac4 --runtime tensorrt-rtx --compute-capability 8.9`
    """
    from trimaran.pipeline.exporting import open_graph
    from trimaran.pipeline.plain_folder import require_output_folder
    from trimaran.quantize.tensorrt.engine import build_engine, short_and_long
    from trimaran.quantize.tensorrt.engine_process import EngineOptions

    require_output_folder(output)
    artifacts = open_store(store, force=force)
    parent = open_graph(artifact, store=artifacts, progress=progress_on_stderr())
    built = build_engine(
        parent,
        EngineOptions(
            compute_capabilities=tuple(part.strip() for part in compute_capability.split(",") if part.strip()),
            weight_streaming=weight_streaming,
            workspace_bytes=workspace_mb << 20 if workspace_mb else None,
            hardware_compatible=hardware_compatible,
        ),
        runtime="tensorrt" if runtime == "tensorrt" else "tensorrt_rtx",
        profiles=short_and_long(parent.profile, split=split) if split else (),
        timing_cache=timing_cache,
        allow_shortfall=allow_shortfall,
        store=artifacts,
        progress=progress_on_stderr(),
    )
    emit_artifact(built, as_json, folder=output, store=artifacts, parent=artifact)
