"""`trimaran finish`: proves laid-out and prepared models on the machine that will serve them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trimaran.cli.app import app
from trimaran.cli.options import (
    REPOSITORY,
    JsonOption,
    RepositoryArgument,
    StoreOption,
    ThreadsOption,
    open_store,
    progress_on_stderr,
    typed_command,
)
from trimaran.cli.output import emit

if TYPE_CHECKING:
    from trimaran.pipeline.finish import FinishResult
    from trimaran.pipeline.reprove import Reproof

THE_GPU = "The GPU"


@app.command(rich_help_panel="Serve")
def finish(
    repository: RepositoryArgument = REPOSITORY,
    name: Annotated[str | None, typer.Argument(help="The model; all that need it by default.")] = None,
    device: Annotated[
        str, typer.Option("--device", help="The GPU of prepared models: cuda or cuda:N.", rich_help_panel=THE_GPU)
    ] = "cuda",
    separate: Annotated[
        bool,
        typer.Option(
            "--separate/--together",
            help="The plan for Triton's own tensorrt backend (official container), or inside the text stage.",
            rich_help_panel=THE_GPU,
        ),
    ] = False,
    into: Annotated[
        Path | None,
        typer.Option("--into", help="Finish a copy in this folder: for a repository that is mounted read-only."),
    ] = None,
    workspace_mb: Annotated[
        int | None, typer.Option("--workspace", help="The builder's scratch memory in MB.", rich_help_panel=THE_GPU)
    ] = None,
    deadline_s: Annotated[
        float, typer.Option("--deadline", help="Seconds that the build of one plan may take.", rich_help_panel=THE_GPU)
    ] = 3600.0,
    quick: Annotated[bool, typer.Option("--quick", help="A short race of the plans.", rich_help_panel=THE_GPU)] = False,
    model: Annotated[
        str | None,
        typer.Option(
            "-m", "--model", help="The trained model: times eager PyTorch beside the plans.", rich_help_panel=THE_GPU
        ),
    ] = None,
    threads: ThreadsOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Prove models on this machine: INT8 on another CPU, and what `deploy --target` prepared for a GPU.

    INT8 answers differ between CPUs with and without VNNI. The golden bundle of a model has requests with eager
    PyTorch's answers: the engine must keep its limits on this CPU too. Where the fp32 graph is here (`deploy
    --shadow-graph`, or the same store), all shipped texts decide by bounds, as in `deploy`. It takes about a minute.

    A prepared model is built by the TensorRT that is here, judged on the GPU, and timed. The fastest plan that keeps
    its gates becomes the next version. A second run does nothing. Exit 4 when an engine breaks a gate.

    Example: `trimaran finish model_repository minilm`
    """
    from trimaran.core.environment import usable_cores
    from trimaran.pipeline.finish import FinishOptions, finish_prepared, prepared_models
    from trimaran.pipeline.finish_copy import copy_repository
    from trimaran.pipeline.reprove import reprove_repository

    if into is not None:
        copy_repository(repository, into)
        repository = into
    prepared = prepared_models(repository, name)
    kept, progress = open_store(store), progress_on_stderr()
    proofs = () if name and prepared else reprove_repository(repository, name, store=kept, progress=progress)
    options = FinishOptions(
        device=device,
        separate=separate,
        threads=threads or usable_cores(),
        workspace_bytes=workspace_mb << 20 if workspace_mb else None,
        deadline_s=deadline_s,
        quick=quick,
        model=model,
    )
    results = (
        finish_prepared(repository, name, options, store=kept, progress=progress, command=typed_command())
        if prepared
        else ()
    )
    if as_json:
        proven = [proof.model_dump(mode="json") for proof in proofs]
        emit({"repository": str(repository), "proven": proven, "finished": [result.facts() for result in results]})
        return
    _print(str(repository), proofs, results)


def _print(repository: str, proofs: tuple[Reproof, ...], results: tuple[FinishResult, ...]) -> None:
    for proof in proofs:
        typer.echo(f"{proof.name} version {proof.version} {_proof_words(proof)}.")
    for result in results:
        already = " It was finished before: nothing to do." if result.known else ""
        typer.echo(f"{result.name} version {result.version}: {result.finished.headline}{already}")
        for note in () if result.known else result.finished.notes:
            typer.echo(f"  {note}")
    if not proofs and not results:
        typer.echo(f"{repository}: every served model is proven here.")


def _proof_words(proof: Reproof) -> str:
    if proof.texts:
        return f"is proven here ({proof.products_by}), on {proof.texts:,} texts"
    return (
        f"keeps its limits on its golden requests here ({proof.products_by}). No more texts were judged: {proof.lacks}"
    )
