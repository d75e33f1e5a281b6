"""One bulk run: checks the settings, lets an engine encode the missing parts, and writes the manifest."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import trimaran
from trimaran.bulk.chunks import chunks_of
from trimaran.bulk.delivery import Delivery
from trimaran.bulk.local_engine import encode_locally
from trimaran.bulk.meter import Meter
from trimaran.bulk.part_files import RunShape, refuse_mismatch
from trimaran.bulk.readers import InputColumns
from trimaran.bulk.run_folder import (
    REJECTS,
    BulkManifest,
    BulkSettings,
    PartEntry,
    PartFacts,
    PartReceipt,
    RunFolder,
    RunTiming,
)
from trimaran.bulk.sources import STDIN, TextSource
from trimaran.bulk.worker import EMBEDDING, EncodeOptions, lanes_for, require_prompt, width_of
from trimaran.core.artifact import Artifact
from trimaran.core.choices import EngineName, PartFormat, VectorDType
from trimaran.core.environment import capture, usable_cores
from trimaran.core.errors import UsageError, ValidationError
from trimaran.core.progress import Progress
from trimaran.core.small_vectors import RANGES
from trimaran.core.tasks import task
from trimaran.runtime.tasks.hybrid_embedding import DENSE, OUTPUTS, wanted_kinds

PART_ROWS = 2048
DISK_WAIT_S = 300.0


@dataclass(frozen=True)
class WorkerOptions:
    """Which engine encodes, and with how many workers; with None, the engine decides."""

    engine: EngineName = "local"
    workers: int | None = None  # child processes or Ray actors
    threads: int | None = None  # cores of each worker
    address: str | None = None  # of a Ray cluster


def settings_for(
    artifact: Artifact,
    *,
    columns: InputColumns,
    how: EncodeOptions,
    format_: PartFormat = "parquet",
    dtype: VectorDType = "fp32",
    part_rows: int | None = None,
    dimensions: int | None = None,
) -> BulkSettings:
    """The settings of a run; raises UsageError if they do not fit the artifact."""
    width = width_of(artifact)
    if dimensions is not None and not 1 <= dimensions <= width:
        raise UsageError(f"{artifact.directory.name} gives vectors of {width} numbers; {dimensions} were asked for.")
    shape = RunShape(
        artifact=artifact.digest,
        task=artifact.task,
        format=format_,
        dtype=dtype,
        width=dimensions or width,
        ranges=artifact.details.get(RANGES, "") if dtype.startswith("calibrated") else "",
    )
    refuse_mismatch(shape)
    row = task(artifact.task)
    texts = row.bulk_texts or row.texts
    for option, example in row.needs_options.items():
        if not how.ask.get(option):
            raise UsageError(f"{artifact.task} needs {option}.", hint=f"Give --ask '{option}={example}'.")
    if format_ == "parquet" and (odd := sorted(row.jsonl_options & set(how.ask))):
        raise UsageError(f"Answers with {odd[0]} do not fit the column of {artifact.task}.", hint="Use --format jsonl.")
    if row.pools and row.column:
        _require_dense(artifact, how, format_)
    if how.overflow != "cut" and artifact.task != EMBEDDING:
        raise UsageError(f"--overflow {how.overflow} joins vectors; {artifact.task} cuts texts that are too long.")
    require_prompt(artifact, how)
    if texts == "pair" and columns.pair is None:
        raise UsageError(f"{artifact.task} reads two texts a row.", hint="Name the second one's column with --pair.")
    if texts == "single" and columns.pair is not None:
        raise UsageError(f"{artifact.task} reads one text a row.", hint="Leave out --pair.")
    return BulkSettings(shape=shape, columns=columns, how=how, part_rows=part_rows or row.bulk_part_rows or PART_ROWS)


def _require_dense(artifact: Artifact, how: EncodeOptions, format_: PartFormat) -> None:
    """Every row of a hybrid model's run has its vector. Formats that hold vectors only take nothing else."""
    try:
        kinds = wanted_kinds(how.ask.get(OUTPUTS))
    except ValueError as error:
        raise UsageError(str(error)) from error
    dense_only = f"--ask '{OUTPUTS}=[\"{DENSE}\"]'"
    if DENSE not in kinds:
        raise UsageError(f"A row of {artifact.task} has its vector: {DENSE} is missing among the outputs.")
    if format_ in ("npy", "faiss") and kinds != (DENSE,):
        raise UsageError(
            f"{format_} holds vectors, and {artifact.task} gives more.",
            hint=f"Use --format parquet or jsonl, or {dense_only}.",
        )


def encode(
    artifact: Artifact,
    sources: Sequence[TextSource],
    output: Path,
    settings: BulkSettings,
    work: WorkerOptions,
    *,
    progress: Progress,
    resume: bool = False,
    strict: bool = False,
    disk_wait_s: float = DISK_WAIT_S,
) -> BulkManifest:
    """Encodes every good row of the sources into `output`. With `resume`, whole parts of an earlier run are kept."""
    environment = capture()
    begun, begun_s = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
    known_size = all(source.path != STDIN for source in sources)
    with RunFolder(output).opened(settings, resume=resume) as folder, progress.stage("encode") as step:
        meter = Meter(step, total_bytes=sum(source.size_bytes for source in sources) if known_size else 0)
        delivery = Delivery(folder, meter, progress, strict, disk_wait_s, earlier=folder.receipts())
        with meter.ticking():
            workers, lanes = _encode_missing(artifact, sources, delivery, settings, work, environment.memory_bytes)
        receipts = delivery.receipts
        require_every_row(receipts)
        folder.remove_others(receipts)
        seconds = time.monotonic() - begun_s
        manifest = BulkManifest(
            trimaran=trimaran.__version__,
            model=artifact.name,
            artifact=artifact.digest,
            settings=settings,
            inputs=tuple(sources),
            engine=work.engine,
            workers=workers,
            lanes=lanes,
            **_totals(receipts),
            ids_repeated=folder.repeated_ids(receipts) if settings.columns.id is not None else 0,
            parts_reused=sum(delivery.earlier.get(index) == receipt for index, receipt in receipts.items()),
            restarts=delivery.restarts,
            waits_for_disk=delivery.waits_for_disk,
            timing=RunTiming(
                begun=begun,
                seconds=round(seconds, 3),
                rows=meter.rows,
                tokens=meter.tokens,
                rows_per_s=round(meter.rows / seconds, 3),
                tokens_per_s=round(meter.tokens / seconds, 3),
            ),
            environment=environment,
        )
        delivery.retry_while_disk_full(lambda: folder.finish(manifest, receipts))
        step.outcome(f"{manifest.rows_written:,} rows in {len(manifest.parts)} parts, {meter.rates()}")
    if manifest.rows_read and not manifest.rows_written:
        reason = next(iter(manifest.rejected))
        raise ValidationError(
            f"None of the {manifest.rows_read:,} rows could be encoded: mostly {reason}.",
            hint=f"See {folder.root / REJECTS}; --column names where the text is.",
            rejected=manifest.rejected,
        )
    return manifest


def _encode_missing(
    artifact: Artifact,
    sources: Sequence[TextSource],
    delivery: Delivery,
    settings: BulkSettings,
    work: WorkerOptions,
    memory_bytes: int,
) -> tuple[int, int]:
    """Encodes what no whole part covers; returns the number of workers, and of lanes of each."""
    if work.engine == "ray":
        from trimaran.bulk.ray_engine import encode_on_ray

        return encode_on_ray(artifact, sources, delivery, settings=settings, work=work)
    workers = work.workers or 1
    cores = work.threads or max(1, usable_cores() // workers)
    lanes, threads = lanes_for(artifact, cores, memory_bytes // workers)
    chunks = delivery.missing(chunks_of(sources, settings.columns, rows=settings.part_rows))
    encode_locally(artifact, chunks, delivery, settings=settings, workers=workers, lanes=lanes, threads=threads)
    return workers, lanes


def require_every_row(receipts: Mapping[int, PartReceipt]) -> None:
    """Parts must follow one another from row 0 without a gap, so that no row is lost and none is there twice."""
    next_row = 0
    for position, index in enumerate(sorted(receipts)):
        if index != position or receipts[index].first_row != next_row:
            raise AssertionError(f"part {index} begins at row {receipts[index].first_row}, wanted {next_row}")
        next_row += receipts[index].size


def _totals(receipts: Mapping[int, PartReceipt]) -> dict[str, Any]:
    """The fields of the manifest that sum up or list the parts."""
    in_order = [receipts[index] for index in sorted(receipts)]
    rejected: Counter[str] = Counter()
    for receipt in in_order:
        rejected.update(receipt.rejected)
    return {
        "rows_read": sum(receipt.size for receipt in in_order),
        "rows_written": sum(receipt.rows for receipt in in_order),
        "rows_rejected": rejected.total(),
        "rejected": dict(rejected.most_common()),
        "rows_cut": sum(receipt.cut for receipt in in_order),
        "tokens": sum(receipt.tokens for receipt in in_order),
        "parts": tuple(
            PartEntry(**receipt.model_dump(include=set(PartFacts.model_fields)), rejected=receipt.size - receipt.rows)
            for receipt in in_order
        ),
    }
