"""`trimaran encode`: encodes whole collections."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trimaran.cli.app import app
from trimaran.cli.options import (
    REPOSITORY,
    JsonOption,
    NameOrArtifactArgument,
    PromptOption,
    StoreOption,
    open_store,
    progress_on_stderr,
)
from trimaran.cli.output import emit
from trimaran.core.choices import EngineName, InputKind, Overflow, PartFormat, Rows, VectorDType
from trimaran.core.errors import UsageError

if TYPE_CHECKING:
    from trimaran.bulk.run_folder import BulkManifest

LookupOption = Annotated[Path, typer.Option("--repository", help="The model repository in which NAME is looked up.")]


@app.command("encode", rich_help_panel="In bulk")
def encode_command(
    model: NameOrArtifactArgument,
    inputs: Annotated[
        list[str],
        typer.Option(
            "--input", "-i", help="File, folder, glob in quotes, or `-` for stdin: .txt .jsonl .csv .tsv .parquet."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for parts, rejects.jsonl and manifest.json.")],
    column: Annotated[
        str, typer.Option("--column", help="Where the text is; a number is a position in .csv/.tsv without header.")
    ] = "text",
    pair: Annotated[
        str | None, typer.Option("--pair", help="Where the second text is, for tasks that read two.")
    ] = None,
    identity: Annotated[
        str | None, typer.Option("--id", help="Where the id is; by default the row's number in the whole input.")
    ] = None,
    input_format: Annotated[
        InputKind | None, typer.Option("--input-format", help="What the input is, where names do not say it.")
    ] = None,
    engine: Annotated[
        EngineName, typer.Option("--engine", help="`local` takes this machine's cores, `ray` Ray Data actors.")
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option("--address", help="A Ray cluster: `auto`, `host:port`, `ray://host:port`; by default its own."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Processes, or Ray actors; by default one, or all that fit.")
    ] = None,
    threads: Annotated[
        int | None, typer.Option("--threads", min=1, help="Cores of each worker; by default all of its share.")
    ] = None,
    format_: Annotated[PartFormat, typer.Option("--format", help="File format of the parts.")] = "parquet",
    dtype: Annotated[
        VectorDType,
        typer.Option(
            "--dtype",
            help="Numbers of a vector; int8 keeps a scale with each, calibrated ones have the ranges of the model.",
        ),
    ] = "fp32",
    dimensions: Annotated[
        int | None, typer.Option("--dimensions", min=1, help="Keep the first numbers of each vector (Matryoshka).")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on in the folder: redo only missing, damaged or changed parts.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first part with a bad row.")] = False,
    reject_long: Annotated[
        bool, typer.Option("--reject-long", help="Reject texts longer than the model reads, instead of cutting them.")
    ] = False,
    overflow: Annotated[
        Overflow,
        typer.Option(
            "--overflow", help="Too long texts: cut, or the mean (windows) or maximum over pieces read whole."
        ),
    ] = "cut",
    longest_bytes: Annotated[
        int, typer.Option("--longest-bytes", min=1, help="Texts and lines beyond this are rejected as too long.")
    ] = 1 << 20,
    rows: Annotated[
        Rows | None, typer.Option("--rows", help="How rows may share a call; by default as it was proven.")
    ] = None,
    part_rows: Annotated[
        int | None, typer.Option("--part-rows", min=1, help="Input rows of each part.", show_default="2048")
    ] = None,
    prompt: PromptOption = None,
    ask_for: Annotated[
        list[str] | None,
        typer.Option("--ask", help='What is asked of a task, KEY=JSON: `top_k=1`, `labels=["a", "b"]`.'),
    ] = None,
    disk_wait_s: Annotated[
        float, typer.Option("--disk-wait", min=0, help="Seconds to wait for room when the disk is full.")
    ] = 300.0,
    repository: LookupOption = REPOSITORY,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Encode a collection: every good row of the input becomes a row of the output, in whole parts.

    Memory stays the same however many texts there are. Rows that cannot be read are counted and written to
    `rejects.jsonl` with the reason. A killed run goes on with `--resume`, with no row lost and none twice.

    Example: `trimaran encode minilm --input 'texts/*.parquet' --column text --id id --output vectors/`
    """
    from trimaran.bulk.readers import InputColumns
    from trimaran.bulk.run import WorkerOptions, encode, settings_for
    from trimaran.bulk.sources import sources_from
    from trimaran.bulk.worker import EncodeOptions
    from trimaran.pipeline.artifact_lookup import find_artifact

    if address is not None and engine != "ray":
        raise UsageError("--address is for --engine ray.", hint="Add --engine ray.")
    if reject_long and overflow != "cut":
        raise UsageError("--reject-long rejects what --overflow would read.", hint="Leave out one of them.")
    known, progress = find_artifact(model, store=open_store(store), repository=repository), progress_on_stderr()
    ask = {**_keywords(ask_for or []), **({"prompt": prompt} if prompt is not None else {})}
    how = EncodeOptions(rows=rows or known.rows, cut_long=not reject_long, ask=ask, overflow=overflow)
    progress.note(
        f"{known.artifact.directory.name} ({known.artifact.digest[:12]}): rows {how.rows}, "
        f"{'as asked' if rows else known.why}."
    )
    settings = settings_for(
        known.artifact,
        columns=InputColumns(text=column, pair=pair, id=identity, longest_bytes=longest_bytes),
        how=how,
        format_=format_,
        dtype=dtype,
        part_rows=part_rows,
        dimensions=dimensions,
    )
    manifest = encode(
        known.artifact,
        sources_from(inputs, kind=input_format, outside=output),
        output,
        settings,
        WorkerOptions(engine=engine, workers=workers, threads=threads, address=address),
        progress=progress,
        resume=resume,
        strict=strict,
        disk_wait_s=disk_wait_s,
    )
    if as_json:
        emit({"output": str(output.absolute()), **manifest.model_dump(mode="json", by_alias=True)})
    else:
        _print_summary(manifest, output)


def _keywords(pairs: list[str]) -> dict[str, Any]:
    keywords = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not (separator and key):
            raise UsageError(f"--ask wants KEY=JSON, found {pair!r}.", hint="For example --ask top_k=1.")
        try:
            keywords[key] = json.loads(value)
        except ValueError:
            keywords[key] = value
    return keywords


def _print_summary(manifest: BulkManifest, output: Path) -> None:
    from trimaran.bulk.meter import duration

    timing = manifest.timing
    lines = [
        f"{manifest.rows_written:,} of {manifest.rows_read:,} rows in {len(manifest.parts)} parts in {output}",
        f"{timing.rows:,} rows in {duration(timing.seconds)}: {timing.rows_per_s:,.0f} rows/s, "
        f"{timing.tokens_per_s:,.0f} tokens/s",
    ]
    if manifest.parts_reused:
        lines.append(f"{manifest.parts_reused} parts were there already")
    if manifest.rows_cut:
        lines.append(f"{manifest.rows_cut:,} texts were longer than the model reads and were cut")
    if manifest.ids_repeated:
        lines.append(f"{manifest.ids_repeated:,} rows have an id that an earlier row has")
    lines += [f"{count:,} rejected: {reason}" for reason, count in manifest.rejected.items()]
    typer.echo("\n".join(lines))
