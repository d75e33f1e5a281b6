"""The same worker as Ray Data actors: Ray schedules, retries and holds back; the command reads its results and writes.

The stream is read by one task on the command's own node, so only that node needs the input files, and only it writes.
Through `ray://` there is no such node: a conductor in the cluster reads, and the command still writes.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import shutil
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimaran.bulk.chunks import Chunk, chunks_of
from trimaran.bulk.delivery import Delivery
from trimaran.bulk.part_files import PartResults, files_of
from trimaran.bulk.run_folder import BulkSettings
from trimaran.bulk.shipping import Shipment, landed, pack
from trimaran.bulk.sources import STDIN, Source
from trimaran.bulk.worker import EncodeWorker, lanes_for
from trimaran.core.artifact import Artifact
from trimaran.core.backends import backend
from trimaran.core.environment import usable_cores
from trimaran.core.errors import ToolError, TrimaranError, UnavailableError, UsageError, first_line

if TYPE_CHECKING:
    from trimaran.bulk.run import WorkerOptions

_PAYLOAD = "payload"
_WIDEST_WORKER = 4
# Rounds that bring no new part before a run gives up; Ray itself retries within a round.
_ROUNDS = 3
_KNOCK_S = 10.0
_TRIES = 3


def encode_on_ray(
    artifact: Artifact, sources: Sequence[Source], delivery: Delivery, *, settings: BulkSettings, work: WorkerOptions
) -> tuple[int, int]:
    """Works through all chunks on a cluster; returns how many actors there were, and lanes of each."""
    with _connected(work.address) as ray, _readable(sources, delivery.folder.root) as files:
        crew = _ActorPlan.of(ray, artifact, work)
        shipment = pack(artifact, ray.put)
        idle = 0
        while idle < _ROUNDS:
            before = len(delivery.receipts)
            try:
                _round(ray, shipment, files, delivery, settings, crew)
                return crew.workers, crew.lanes
            except TrimaranError:
                raise
            except Exception as error:
                if (ours := _ours_in(error)) is not None:
                    raise ours from error
                if not type(error).__module__.startswith("ray."):
                    raise
                idle = idle + 1 if len(delivery.receipts) == before else 1
                last = error
                delivery.restarted(f"Ray ended a round with {type(error).__name__}; going on with what is missing.")
        raise ToolError(
            f"Ray failed {_ROUNDS} times without finishing a part: {first_line(last)}",
            hint="What is finished is kept: mend the cluster and run again with --resume.",
        ) from last


class _ActorPlan:
    """How many actors, and what each asks of its node."""

    def __init__(self, workers: int, cores: int, gpus: int, lanes: int, threads: int) -> None:
        self.workers, self.cores, self.gpus, self.lanes, self.threads = workers, cores, gpus, lanes, threads

    @classmethod
    def of(cls, ray: Any, artifact: Artifact, work: WorkerOptions) -> _ActorPlan:
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
        gpus = 1 if backend(artifact.backend).needs_driver else 0
        if gpus:
            nodes = [resources for resources in nodes if resources.get("GPU")]
        if not nodes:
            raise UnavailableError(
                f"The Ray cluster has no node with {'a GPU' if gpus else 'CPUs'}, which {artifact.backend} needs."
            )
        cores = work.threads or max(1, min(_WIDEST_WORKER, *(int(resources["CPU"]) for resources in nodes)))
        fitting = sum(
            min(int(node["CPU"]) // cores, int(node.get("GPU", 0)) if gpus else sys.maxsize) for node in nodes
        )
        if not fitting:
            raise UsageError(f"No node of the Ray cluster has {cores} CPUs for a worker.", hint="Give fewer --threads.")
        memory_bytes = int(min(node.get("memory", 1 << 40) * cores / node["CPU"] for node in nodes))
        lanes, threads = lanes_for(artifact, cores, memory_bytes)
        # More actors than the cluster has room for would be waited for in vain.
        return cls(min(work.workers or fitting, fitting), cores, gpus, lanes, threads)


class _Actor:
    """One artifact, opened once; called with chunks."""

    def __init__(self, shipment: Shipment, settings: BulkSettings, lanes: int, threads: int) -> None:
        import ray

        artifact = landed(shipment, ray.get)
        self._settings = settings
        self._worker = EncodeWorker(str(artifact.directory), lanes=lanes, threads=threads, how=settings.how)
        self._worker.opened()

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        sent = [pickle.loads(data) for data in batch[_PAYLOAD]]  # noqa: S301  (made by our own reader)
        return {_PAYLOAD: [pickle.dumps(self._encoded(item)) for item in sent]}

    def _encoded(self, sent: dict[str, Any]) -> dict[str, Any]:
        chunk: Chunk | None = sent.get("chunk")
        if chunk is None:
            return sent
        found = self._worker.encoded(chunk.texts)
        part = PartResults(
            [chunk.rows[i] for i in found.kept], [chunk.ids[i] for i in found.kept], found.vectors, found.answers
        )
        return {
            **sent,
            "files": files_of(part, self._settings.shape),
            "bad": found.bad,
            "tokens": found.tokens,
            "cut": found.cut,
            "who": (os.uname().nodename, os.getpid()),
        }


def _round(
    ray: Any, shipment: Shipment, files: Sequence[Source], delivery: Delivery, settings: BulkSettings, crew: _ActorPlan
) -> None:
    """One pass over the whole input; parts that are whole already only pass by."""
    known = {index: receipt.input_sha256 for index, receipt in {**delivery.known, **delivery.receipts}.items()}
    stream = _conducted if ray.util.client.ray.is_connected() else _payloads
    seen: set[Any] = set()
    for payload in stream(shipment, files, settings, known, crew):
        _take(pickle.loads(payload), delivery, seen)  # noqa: S301  (made by our own actors)
    for _ in range(len(seen) - crew.workers):
        delivery.restarted("A Ray worker was lost; another one took its part.")


def _payloads(
    shipment: Shipment, files: Sequence[Source], settings: BulkSettings, known: Mapping[int, str], crew: _ActorPlan
) -> Iterator[bytes]:
    """What the actors made of the chunks, in the order in which they are done."""
    import ray
    from ray.data import ActorPoolStrategy, read_datasource

    here = {"ray.io/node-id": ray.get_runtime_context().get_node_id()}
    with _quiet_context():
        # No CPU is asked for: the actors may hold all of them, and reading costs next to nothing.
        stream = read_datasource(
            _chunk_source(files, settings, known), override_num_blocks=1, num_cpus=0, label_selector=here
        ).map_batches(
            _Actor,
            fn_constructor_kwargs={
                "shipment": shipment,
                "settings": settings,
                "lanes": crew.lanes,
                "threads": crew.threads,
            },
            batch_size=1,
            batch_format="numpy",
            # The next chunk is tokenised while one is worked on; the worker is made for calls from several threads.
            compute=ActorPoolStrategy(
                size=crew.workers,
                max_tasks_in_flight_per_actor=2,
                max_concurrent_calls_per_actor=2,
                enable_true_multi_threading=True,
            ),
            num_cpus=crew.cores,
            num_gpus=crew.gpus or None,
        )
        for row in stream.iter_rows():
            yield row[_PAYLOAD]


class _ClusterRound:
    """Runs a round inside the cluster for a command outside of it: Ray Data does not work through `ray://`."""

    def __init__(self, files: Sequence[Source], **round_: Any) -> None:
        for source in files:
            if not Path(source.path).is_file():
                raise UsageError(
                    f"{source.path} is not to be seen from the cluster's node {os.uname().nodename}.",
                    hint="Through ray:// the input must be on storage that the cluster's nodes see.",
                )
        self._payloads = _payloads(files=files, **round_)

    def next(self) -> bytes | None:
        return next(self._payloads, None)


def _conducted(
    shipment: Shipment, files: Sequence[Source], settings: BulkSettings, known: Mapping[int, str], crew: _ActorPlan
) -> Iterator[bytes]:
    import ray

    conductor = (
        ray.remote(_ClusterRound)
        .options(num_cpus=0)
        .remote(shipment=shipment, files=files, settings=settings, known=known, crew=crew)
    )
    try:
        coming = conductor.next.remote()
        while (payload := ray.get(coming)) is not None:
            coming = conductor.next.remote()
            yield payload
    finally:
        ray.kill(conductor)


def _take(got: dict[str, Any], delivery: Delivery, seen: set[Any]) -> None:
    index, digest = got["index"], got["digest"]
    if index in delivery.receipts and delivery.receipts[index].input_sha256 == digest:
        return
    if delivery.reused(index, digest, got["read_bytes"]):
        return
    seen.add(got["who"])
    entries = delivery.patiently(lambda: delivery.folder.write_temporary(index, got["files"]))
    delivery.deliver(got["chunk"], files=entries, bad=got["bad"], tokens=got["tokens"], cut=got["cut"])


def _chunk_source(files: Sequence[Source], settings: BulkSettings, known: Mapping[int, str]) -> Any:
    """The stream of chunks as a Ray Data source of one generator, which Ray holds back when memory is short."""
    import pyarrow as pa
    from ray.data.block import BlockMetadata
    from ray.data.datasource import Datasource, ReadTask

    def blocks() -> Iterable[Any]:
        for chunk in chunks_of(files, settings.columns, rows=settings.part_rows):
            digest = chunk.digest
            sent: dict[str, Any] = {"index": chunk.index, "digest": digest, "read_bytes": chunk.read_bytes}
            if known.get(chunk.index) != digest:
                sent["chunk"] = chunk
            yield pa.table({_PAYLOAD: pa.array([pickle.dumps(sent)], pa.large_binary())})

    class Chunks(Datasource):
        def estimate_inmemory_data_size(self) -> int | None:
            return None

        def get_read_tasks(self, parallelism: int, *_: Any, **__: Any) -> list[Any]:
            nothing = BlockMetadata(num_rows=None, size_bytes=None, exec_stats=None, input_files=None)
            return [ReadTask(blocks, nothing)]

    return Chunks()


def _no_cluster(address: str | None, error: Exception) -> UnavailableError:
    return UnavailableError(
        f"No Ray cluster at {address or 'this machine'}: {first_line(error)}",
        hint="`ray start --head` starts one; without --address the command starts its own.",
    )


@contextlib.contextmanager
def _connected(address: str | None) -> Iterator[Any]:
    """A Ray of our own that ends with the block, or the cluster at an address, which goes on without us."""
    try:
        import ray
    except ImportError as error:
        raise UnavailableError(
            f"The engine `ray` wants Ray: {error}.", hint="pip install 'trimaran[scale]' -c constraints.txt"
        ) from error
    if ray.is_initialized():
        raise UsageError("This process is connected to a Ray cluster already.", hint="Disconnect with ray.shutdown().")
    settings: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
    if address is None:
        settings |= {"address": "local", "num_cpus": usable_cores(), "include_dashboard": False}
    else:
        settings["address"] = address
    for tries_left in reversed(range(_TRIES)):
        try:
            _knock(address)
            ray.init(**settings)
            break
        except ConnectionAbortedError as error:  # a busy cluster that took too long to start a server for us
            if not tries_left:
                raise _no_cluster(address, error) from error
        except Exception as error:
            raise _no_cluster(address, error) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _knock(address: str | None) -> None:
    """Ray tries for minutes to reach a port that nobody listens on; one try is enough to know."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=_KNOCK_S).close()


@contextlib.contextmanager
def _readable(sources: Sequence[Source], folder: Path) -> Iterator[Sequence[Source]]:
    """Stdin belongs to this process alone: it is put into a file first, for the task that reads."""
    if all(source.path != STDIN for source in sources):
        yield sources
        return
    spool = folder / f".stdin-{os.getpid()}"
    try:
        with spool.open("wb") as stream:
            shutil.copyfileobj(sys.stdin.buffer, stream)
        size = spool.stat().st_size
        yield [
            source.model_copy(update={"path": str(spool), "size_bytes": size}) if source.path == STDIN else source
            for source in sources
        ]
    finally:
        spool.unlink(missing_ok=True)


@contextlib.contextmanager
def _quiet_context() -> Iterator[None]:
    """Ray Data's settings for our rows, each of which is a whole chunk and so a block of its own."""
    from ray.data import DataContext

    # What Ray Data says goes to its log files; on the terminal stands our own progress.
    for handler in logging.getLogger("ray.data").handlers:
        if isinstance(handler, logging.StreamHandler):
            handler.setLevel(logging.ERROR)
    context = DataContext.get_current()
    wanted = {
        "target_max_block_size": 1,
        "target_min_block_size": 1,
        "enable_progress_bars": False,
        "print_on_execution_start": False,
        "enable_rich_progress_bars": False,
    }
    before = {name: getattr(context, name) for name in wanted if hasattr(context, name)}
    for name in before:
        setattr(context, name, wanted[name])
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(context, name, value)


def _ours_in(error: BaseException) -> TrimaranError | None:
    """The error of ours that a remote call carries, wherever Ray has put it."""
    waiting: list[Any] = [error]
    seen: set[int] = set()
    while waiting:
        current = waiting.pop()
        if isinstance(current, TrimaranError):
            return current
        if not isinstance(current, BaseException) or id(current) in seen:
            continue
        seen.add(id(current))
        waiting += [current.__cause__, current.__context__, getattr(current, "cause", None)]
    return None
