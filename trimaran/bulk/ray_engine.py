"""Encodes chunks on a Ray cluster: the same worker as a Ray Data actor.

One task on the command's own node reads the input, Ray schedules the actors, and the command writes the parts. So only
that node needs the input files. With `ray://` the command is on no node: a task in the cluster reads the input.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimaran.bulk.chunks import Chunk, chunks_of
from trimaran.bulk.delivery import Delivery
from trimaran.bulk.part_files import files_of
from trimaran.bulk.ray_cluster import ActorPlan, connected, one_chunk_per_block, plan_actors, trimaran_error_in
from trimaran.bulk.run_folder import BulkSettings, write_temporary
from trimaran.bulk.shipping import Shipment, pack, unpack
from trimaran.bulk.sources import STDIN, TextSource
from trimaran.bulk.worker import EncodeWorker
from trimaran.core.artifact import Artifact
from trimaran.core.errors import ToolError, TrimaranError, UsageError, first_line

if TYPE_CHECKING:
    from trimaran.bulk.run import WorkerOptions

_PAYLOAD = "payload"
# A run gives up after so many rounds without a new part; Ray itself retries within a round.
_ROUNDS = 3


@dataclass(frozen=True)
class _Round:
    """One pass over the whole input, as the cluster needs it."""

    shipment: Shipment
    sources: Sequence[TextSource]
    settings: BulkSettings
    plan: ActorPlan
    made: Mapping[int, str]  # `Chunk.digest` of the parts that are there already, by index


def encode_on_ray(
    artifact: Artifact,
    sources: Sequence[TextSource],
    delivery: Delivery,
    *,
    settings: BulkSettings,
    work: WorkerOptions,
) -> tuple[int, int]:
    """Encodes all chunks on a cluster; returns the number of actors, and of lanes of each."""
    with connected(work.address) as ray, _stdin_in_file(sources, delivery.folder.root) as files:
        plan = plan_actors(ray, artifact, work)
        shipment = pack(artifact, ray.put)
        idle = 0
        while idle < _ROUNDS:
            before = len(delivery.receipts)
            made = {index: receipt.input_sha256 for index, receipt in {**delivery.earlier, **delivery.receipts}.items()}
            try:
                _run_round(ray, _Round(shipment, files, settings, plan, made), delivery)
                return plan.workers, plan.lanes
            except TrimaranError:
                raise
            except Exception as error:
                if (carried := trimaran_error_in(error)) is not None:
                    raise carried from error
                if not type(error).__module__.startswith("ray."):
                    raise
                idle = idle + 1 if len(delivery.receipts) == before else 1
                last = error
                delivery.restarted(f"Ray ended a round with {type(error).__name__}; continuing with what is missing.")
        raise ToolError(
            f"Ray failed {_ROUNDS} times without finishing a part: {first_line(last)}",
            hint="Finished parts are kept: repair the cluster and run again with --resume.",
        ) from last


def _run_round(ray: Any, this: _Round, delivery: Delivery) -> None:
    """Encodes the missing parts; parts that are there only pass by."""
    payloads = _payloads_from_cluster if ray.util.client.ray.is_connected() else _payloads
    actors: set[Any] = set()
    for payload in payloads(this):
        _deliver(pickle.loads(payload), delivery, actors)  # noqa: S301  (made by our own actors)
    for _ in range(len(actors) - this.plan.workers):
        delivery.restarted("A Ray worker was lost; another one took its part.")


def _deliver(item: dict[str, Any], delivery: Delivery, actors: set[Any]) -> None:
    """Publishes what an actor returned, unless the part is there. Adds the actor to `actors`."""
    index, digest = item["index"], item["digest"]
    if index in delivery.receipts and delivery.receipts[index].input_sha256 == digest:
        return
    if delivery.reuse(index, digest, item["read_bytes"]):
        return
    actors.add(item["actor"])
    files = delivery.retry_while_disk_full(lambda: write_temporary(delivery.folder.parts, index, item["files"]))
    delivery.deliver(item["chunk"], files=files, bad=item["bad"], tokens=item["tokens"], cut=item["cut"])


def _payloads(this: _Round) -> Iterator[bytes]:
    """The results of the actors, in the order in which they are ready."""
    import ray
    from ray.data import ActorPoolStrategy, read_datasource

    own_node = {"ray.io/node-id": ray.get_runtime_context().get_node_id()}
    with one_chunk_per_block():
        # Reading asks for no CPU: the actors may hold all of them, and reading costs next to nothing.
        stream = read_datasource(
            _chunk_source(this), override_num_blocks=1, num_cpus=0, label_selector=own_node
        ).map_batches(
            _Actor,
            fn_constructor_kwargs={"shipment": this.shipment, "settings": this.settings, "plan": this.plan},
            batch_size=1,
            batch_format="numpy",
            # While one chunk is encoded, the next is tokenised; the worker is safe to call from several threads.
            compute=ActorPoolStrategy(
                size=this.plan.workers,
                max_tasks_in_flight_per_actor=2,
                max_concurrent_calls_per_actor=2,
                enable_true_multi_threading=True,
            ),
            num_cpus=this.plan.cores,
            num_gpus=this.plan.gpus or None,
        )
        for row in stream.iter_rows():
            yield row[_PAYLOAD]


def _chunk_source(this: _Round) -> Any:
    """The chunks as a Ray Data source of one generator, which Ray pauses when memory is short."""
    import pyarrow as pa
    from ray.data.block import BlockMetadata
    from ray.data.datasource import Datasource, ReadTask

    # The task is sent with what it needs; the shipment is not part of it.
    sources, settings, made = this.sources, this.settings, this.made

    def blocks() -> Iterable[Any]:
        for chunk in chunks_of(sources, settings.columns, rows=settings.part_rows):
            item: dict[str, Any] = {"index": chunk.index, "digest": chunk.digest, "read_bytes": chunk.read_bytes}
            if made.get(chunk.index) != chunk.digest:
                item["chunk"] = chunk
            yield pa.table({_PAYLOAD: pa.array([pickle.dumps(item)], pa.large_binary())})

    class ChunkSource(Datasource):
        def estimate_inmemory_data_size(self) -> int | None:
            return None

        def get_read_tasks(self, parallelism: int, *_: Any, **__: Any) -> list[Any]:
            unknown = BlockMetadata(num_rows=None, size_bytes=None, exec_stats=None, input_files=None)
            return [ReadTask(blocks, unknown)]

    return ChunkSource()


class _Actor:
    """An artifact that is opened once and called with chunks."""

    def __init__(self, shipment: Shipment, settings: BulkSettings, plan: ActorPlan) -> None:
        import ray

        directory = str(unpack(shipment, ray.get).directory)
        self._shape = settings.shape
        self._worker = EncodeWorker(directory, lanes=plan.lanes, threads=plan.threads, how=settings.how)
        self._worker.opened()

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        items = [pickle.loads(data) for data in batch[_PAYLOAD]]  # noqa: S301  (made by our own reader)
        return {_PAYLOAD: [pickle.dumps(self._encoded(item)) for item in items]}

    def _encoded(self, item: dict[str, Any]) -> dict[str, Any]:
        chunk: Chunk | None = item.get("chunk")
        if chunk is None:
            return item
        encoded = self._worker.encoded(chunk.texts)
        return {
            **item,
            "files": files_of(encoded.part(chunk.rows, chunk.ids), self._shape),
            "bad": encoded.bad,
            "tokens": encoded.tokens,
            "cut": encoded.cut,
            "actor": (os.uname().nodename, os.getpid()),
        }


class _ClusterRound:
    """Runs a round inside the cluster for a command outside of it: Ray Data does not work through `ray://`."""

    def __init__(self, this: _Round) -> None:
        for source in this.sources:
            if not Path(source.path).is_file():
                raise UsageError(
                    f"{source.path} does not exist on the cluster's node {os.uname().nodename}.",
                    hint="With ray:// the input must be on storage that the cluster's nodes see.",
                )
        self._payloads = _payloads(this)

    def next(self) -> bytes | None:
        return next(self._payloads, None)


def _payloads_from_cluster(this: _Round) -> Iterator[bytes]:
    import ray

    actor = ray.remote(_ClusterRound).options(num_cpus=0).remote(this)
    try:
        coming = actor.next.remote()
        while (payload := ray.get(coming)) is not None:
            coming = actor.next.remote()
            yield payload
    finally:
        ray.kill(actor)


@contextlib.contextmanager
def _stdin_in_file(sources: Sequence[TextSource], folder: Path) -> Iterator[Sequence[TextSource]]:
    """Copies stdin into a file, which the reading task can open; only this process has the stream."""
    if all(source.path != STDIN for source in sources):
        yield sources
        return
    copy = folder / f".stdin-{os.getpid()}"
    try:
        with copy.open("wb") as stream:
            shutil.copyfileobj(sys.stdin.buffer, stream)
        size = copy.stat().st_size
        yield [
            source.model_copy(update={"path": str(copy), "size_bytes": size}) if source.path == STDIN else source
            for source in sources
        ]
    finally:
        copy.unlink(missing_ok=True)
