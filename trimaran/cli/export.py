"""`trimaran export` and `trimaran whiten`: from a trained model to a proven ONNX graph."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trimaran.cli.app import app
from trimaran.cli.options import (
    REPOSITORY,
    BatchOption,
    DimensionsOption,
    ExporterOption,
    FamilyOption,
    FolderOption,
    ForceOption,
    HubOption,
    JsonOption,
    LayerOption,
    LayoutOption,
    ModelArgument,
    ModelOption,
    ModuleOption,
    NormalizeOption,
    PoolingOption,
    RepositoryOption,
    SequenceOption,
    StoreOption,
    TaskOption,
    WhiteningOption,
    deploy_config_of,
    open_store,
    progress_on_stderr,
)
from trimaran.cli.output import emit, emit_artifact


@app.command(rich_help_panel="Stages")
def export(
    context: typer.Context,
    folder: ModelArgument = None,
    model: ModelOption = None,
    task: TaskOption = None,
    output: FolderOption = None,
    layout: LayoutOption = "plain",
    batch: BatchOption = None,
    sequence: SequenceOption = None,
    family: FamilyOption = None,
    module: ModuleOption = None,
    pooling: PoolingOption = None,
    layers: LayerOption = None,
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
    repository: RepositoryOption = REPOSITORY,
    store: StoreOption = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Export a trained model to one ONNX graph, proven equal to eager PyTorch.

    By the name of a deployed model, what is served of it is written to `-o`, as it was proven.

    Example: `trimaran export ./my-model -o exported --sequence 1 128 512`

    Example: `trimaran export minilm -o for-optimum --layout optimum`
    """
    from trimaran.pipeline.exporting import export_configured, made_before
    from trimaran.pipeline.plain_folder import require_output_folder

    require_output_folder(output, layout)
    artifacts, config = open_store(store, force=force), deploy_config_of(context)
    graph = made_before(config.model, store=artifacts, repository=repository) or export_configured(
        config, atol=atol, store=artifacts, progress=progress_on_stderr()
    )
    emit_artifact(graph, as_json, folder=output, store=artifacts, layout=layout)


@app.command(rich_help_panel="Stages")
def whiten(
    context: typer.Context,
    model: ModelOption = None,
    corpus: Annotated[Path, typer.Option("--corpus", help="Text file, one a line; read as a stream.")] = Path(
        "texts.txt"
    ),
    dimensions: DimensionsOption = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="The whitening to write.")] = Path(
        "whitening.safetensors"
    ),
    pooling: PoolingOption = None,
    layers: LayerOption = None,
    family: FamilyOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compute a whitening from a corpus, for `--whitening` of `export` and `deploy`.

    Example: `trimaran whiten -m ./my-model --corpus texts.txt --dimensions 256`
    """
    from trimaran.pipeline.exporting import whiten_configured

    path = whiten_configured(
        deploy_config_of(context), corpus, output, store=open_store(store), progress=progress_on_stderr()
    )
    if as_json:
        emit({"whitening": str(path)})
    else:
        typer.echo(str(path))
