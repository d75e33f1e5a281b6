"""The command that encodes whole collections."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trimaran.cli import app
from trimaran.cli.deploy import JsonOption, StoreOption, emit, progress_now, shelf_at
from trimaran.cli.serve import Rows
from trimaran.core.errors import UsageError

if TYPE_CHECKING:
    from trimaran.bulk.run_folder import BulkManifest

RepositoryOption = Annotated[
    Path, typer.Option("--repository", help="The model repository in which NAME is looked up.")
]


class Engine(StrEnum):
    local = "local"
    ray = "ray"


class Format(StrEnum):
    parquet = "parquet"
    npy = "npy"
    faiss = "faiss"
    jsonl = "jsonl"


class DType(StrEnum):
    fp32 = "fp32"
    fp16 = "fp16"
    int8 = "int8"


class InputFormat(StrEnum):
    txt = "txt"
    jsonl = "jsonl"
    csv = "csv"
    tsv = "tsv"
    parquet = "parquet"


@app.command("encode", rich_help_panel="In bulk")
def encode_command(
    model: Annotated[
        str,
        typer.Argument(metavar="NAME|ARTIFACT", help="A deployed model by name, or an artifact by folder or digest."),
    ],
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
        InputFormat | None, typer.Option("--input-format", help="What the input is, where names do not say it.")
    ] = None,
    engine: Annotated[
        Engine, typer.Option("--engine", help="`local` takes this machine's cores, `ray` Ray Data actors.")
    ] = Engine.local,
    address: Annotated[
        str | None,
        typer.Option("--address", help="A Ray cluster: `auto`, `host:port`, `ray://host:port`; by default an own one."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Processes, or Ray actors; by default one, or all that fit.")
    ] = None,
    threads: Annotated[
        int | None, typer.Option("--threads", min=1, help="Cores of each worker; by default all of its share.")
    ] = None,
    format_: Annotated[Format, typer.Option("--format", help="What the parts are.")] = Format.parquet,
    dtype: Annotated[DType, typer.Option("--dtype", help="Numbers of a vector; int8 keeps a scale with each.")] = (
        DType.fp32
    ),
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on in the folder: redo only missing, damaged or changed parts.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first part with a bad row.")] = False,
    reject_long: Annotated[
        bool, typer.Option("--reject-long", help="Reject texts longer than the model reads, instead of cutting them.")
    ] = False,
    longest_bytes: Annotated[
        int, typer.Option("--longest-bytes", min=1, help="Texts and lines beyond this are rejected as too long.")
    ] = 1 << 20,
    rows: Annotated[
        Rows | None, typer.Option("--rows", help="How rows may share a call; by default as it was proven.")
    ] = None,
    part_rows: Annotated[
        int | None, typer.Option("--part-rows", min=1, help="Input rows of each part.", show_default="2048")
    ] = None,
    prompt: Annotated[
        str | None,
        typer.Option("--prompt", help="A prompt of the model, by name, before every text; by default its default one."),
    ] = None,
    ask: Annotated[
        list[str] | None,
        typer.Option("--ask", help='What is asked of a task, KEY=JSON: `top_k=1`, `labels=["a", "b"]`.'),
    ] = None,
    disk_wait_s: Annotated[
        float, typer.Option("--disk-wait", min=0, help="Seconds to wait for room when the disk is full.")
    ] = 300.0,
    repository: RepositoryOption = Path("model_repository"),
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Encode a collection: every good row of the input becomes a row of the output, in whole parts.

    Memory stays the same however many texts there are. Rows that cannot be read are counted and written to
    `rejects.jsonl` with the reason. A killed run goes on with `--resume`, with no row lost and none twice.

    `trimaran encode minilm --input 'texts/*.parquet' --column text --id id --output vectors/`
    """
    from trimaran.bulk.readers import InputColumns
    from trimaran.bulk.run import WorkerOptions, encode, settings_for
    from trimaran.bulk.sources import sources_from
    from trimaran.bulk.worker import EncodeOptions
    from trimaran.pipeline.deployed import deployed

    if address is not None and engine is not Engine.ray:
        raise UsageError("--address is for --engine ray.", hint="Add --engine ray.")
    found = deployed(model, store=shelf_at(store), repository=repository)
    progress = progress_now()
    asked = {**_asked(ask or []), **({"prompt": prompt} if prompt is not None else {})}
    how = EncodeOptions(rows=rows.value if rows else found.rows, cut_long=not reject_long, ask=asked)
    progress.note(
        f"{found.artifact.directory.name} ({found.artifact.digest[:12]}): rows {how.rows}, "
        f"{'as asked' if rows else found.why}."
    )
    settings = settings_for(
        found.artifact,
        columns=InputColumns(text=column, pair=pair, id=identity, longest_bytes=longest_bytes),
        how=how,
        format_=format_.value,
        dtype=dtype.value,
        part_rows=part_rows,
    )
    manifest = encode(
        found.artifact,
        sources_from(inputs, kind=input_format.value if input_format else None, outside=output),
        output,
        settings,
        WorkerOptions(engine=engine.value, workers=workers, threads=threads, address=address),
        progress=progress,
        resume=resume,
        strict=strict,
        disk_wait_s=disk_wait_s,
    )
    if as_json:
        emit({"output": str(output.absolute()), **manifest.model_dump(mode="json", by_alias=True)})
    else:
        _print_summary(manifest, output)


def _asked(given: list[str]) -> dict[str, Any]:
    found = {}
    for item in given:
        key, mark, value = item.partition("=")
        if not (mark and key):
            raise UsageError(f"--ask wants KEY=JSON, found {item!r}.", hint="For example --ask top_k=1.")
        try:
            found[key] = json.loads(value)
        except ValueError:
            found[key] = value
    return found


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
    lines += [f"{count:,} rejected: {reason}" for reason, count in manifest.rejected.items()]
    typer.echo("\n".join(lines))
