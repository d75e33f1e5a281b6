"""One bulk run from texts to vectors: what is to be done, who does it, and what is left behind."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import trimaran
from trimaran.bulk.chunks import chunks_of
from trimaran.bulk.delivery import Delivery
from trimaran.bulk.local_engine import encode_locally
from trimaran.bulk.meter import Meter
from trimaran.bulk.part_files import DType, Format, Shape, refuse_mismatch
from trimaran.bulk.readers import Columns
from trimaran.bulk.run_folder import BulkManifest, PartEntry, Receipt, RunFolder, Settings, Timing, counted
from trimaran.bulk.sources import STDIN, Source
from trimaran.bulk.worker import How, lanes_for, require_prompt, width_of
from trimaran.core.artifact import Artifact
from trimaran.core.environment import capture, usable_cores
from trimaran.core.errors import UsageError, ValidationError
from trimaran.core.progress import Progress
from trimaran.core.tasks import task

EngineName = Literal["local", "ray"]
PART_ROWS = 2048
# Token vectors are a matrix for each text, so a part of them holds fewer.
DISK_WAIT_S = 300.0


@dataclass(frozen=True)
class Work:
    """Who works: processes or actors, and cores for each; None is for the engine to decide."""

    engine: EngineName = "local"
    workers: int | None = None
    threads: int | None = None
    address: str | None = None


def settings_for(
    artifact: Artifact,
    *,
    columns: Columns,
    how: How,
    format_: Format = "parquet",
    dtype: DType = "fp32",
    part_rows: int | None = None,
) -> Settings:
    """The settings of a run, or the reason why this artifact cannot have them."""
    shape = Shape(artifact=artifact.digest, task=artifact.task, format=format_, dtype=dtype, width=width_of(artifact))
    refuse_mismatch(shape)
    row = task(artifact.task)
    wanted = row.bulk_texts or row.texts
    for option, example in row.needs_options.items():
        if not how.ask.get(option):
            raise UsageError(f"{artifact.task} wants {option}.", hint=f"Give --ask '{option}={example}'.")
    require_prompt(artifact, how)
    if wanted == "pair" and columns.pair is None:
        raise UsageError(f"{artifact.task} reads two texts a row.", hint="Name the second one's column with --pair.")
    if wanted == "single" and columns.pair is not None:
        raise UsageError(f"{artifact.task} reads one text a row.", hint="Leave --pair away.")
    return Settings(shape=shape, columns=columns, how=how, part_rows=part_rows or row.bulk_part_rows or PART_ROWS)


def encode(
    artifact: Artifact,
    sources: Sequence[Source],
    output: Path,
    settings: Settings,
    work: Work,
    *,
    progress: Progress,
    resume: bool = False,
    strict: bool = False,
    disk_wait_s: float = DISK_WAIT_S,
) -> BulkManifest:
    """Encodes every good row of the sources into `output`; what an earlier run left whole is kept when resuming."""
    environment = capture()
    begun, begun_s = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
    known_size = all(source.path != STDIN for source in sources)
    with RunFolder(output).opened(settings, resume=resume) as folder, progress.stage("encode") as step:
        meter = Meter(step, total_bytes=sum(source.size_bytes for source in sources) if known_size else 0)
        delivery = Delivery(folder, meter, progress, strict, disk_wait_s, known=folder.receipts())
        with meter.ticking():
            if work.engine == "ray":
                from trimaran.bulk.ray_engine import encode_on_ray

                workers, lanes = encode_on_ray(artifact, sources, delivery, settings=settings, work=work)
            else:
                workers = work.workers or 1
                cores = work.threads or max(1, usable_cores() // workers)
                lanes, threads = lanes_for(artifact, cores, environment.memory_bytes // workers)
                chunks = delivery.wanted(chunks_of(sources, settings.columns, rows=settings.part_rows))
                encode_locally(
                    artifact, chunks, delivery, settings=settings, workers=workers, lanes=lanes, threads=threads
                )
        receipts = delivery.receipts
        require_every_row(receipts)
        folder.remove_beyond(receipts)
        seconds = time.monotonic() - begun_s
        reused = [index for index, receipt in receipts.items() if delivery.known.get(index) == receipt]
        manifest = BulkManifest(
            trimaran=trimaran.__version__,
            model=artifact.name,
            artifact=artifact.digest,
            settings=settings,
            inputs=tuple(sources),
            engine=work.engine,
            workers=workers,
            lanes=lanes,
            rows_read=sum(receipt.size for receipt in receipts.values()),
            rows_written=sum(receipt.rows for receipt in receipts.values()),
            rows_rejected=sum(receipt.size - receipt.rows for receipt in receipts.values()),
            rejected=counted(receipts),
            rows_cut=sum(receipt.cut for receipt in receipts.values()),
            tokens=sum(receipt.tokens for receipt in receipts.values()),
            parts=tuple(_entry(receipts[index]) for index in sorted(receipts)),
            parts_reused=len(reused),
            restarts=delivery.restarts,
            waits_for_disk=delivery.waits_for_disk,
            timing=Timing(
                begun=begun,
                seconds=round(seconds, 3),
                rows=meter.rows,
                tokens=meter.tokens,
                rows_per_s=round(meter.rows / seconds, 3),
                tokens_per_s=round(meter.tokens / seconds, 3),
            ),
            environment=environment,
        )
        delivery.patiently(lambda: folder.finish(manifest, receipts))
        step.outcome(f"{manifest.rows_written:,} rows in {len(manifest.parts)} parts, {meter.rates()}")
    if manifest.rows_read and not manifest.rows_written:
        reason = next(iter(manifest.rejected))
        raise ValidationError(
            f"None of the {manifest.rows_read:,} rows could be encoded: mostly {reason}.",
            hint=f"See {folder.root / 'rejects.jsonl'}; --column names where the text is.",
            rejected=manifest.rejected,
        )
    return manifest


def require_every_row(receipts: dict[int, Receipt]) -> None:
    """Parts must follow one another from row 0 without a gap: no row lost, none twice."""
    wanted = 0
    for place, index in enumerate(sorted(receipts)):
        if index != place or receipts[index].first_row != wanted:
            raise AssertionError(f"part {index} begins at row {receipts[index].first_row}, wanted {wanted}")
        wanted += receipts[index].size


def _entry(receipt: Receipt) -> PartEntry:
    return PartEntry(
        index=receipt.index,
        first_row=receipt.first_row,
        size=receipt.size,
        rows=receipt.rows,
        rejected=receipt.size - receipt.rows,
        files=receipt.files,
    )
