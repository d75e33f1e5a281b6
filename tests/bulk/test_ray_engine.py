"""The Ray engine on a cluster of three nodes: the same bits as the local engine, whatever happens on the way."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.bulk.worlds import require_same_parts, run, sentences, written
from tests.commands import COMMAND, environment, trimaran_json
from tests.serving.worlds import eventually
from trimaran.bulk.run import WorkerOptions
from trimaran.bulk.run_folder import PartReceipt, RunFolder
from trimaran.core.artifact import Artifact
from trimaran.core.errors import UnavailableError

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
ROWS = 4000
NODES = 2


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = sentences(ROWS - 1, seed=9)
    return written(tmp_path_factory.mktemp("in") / "a.txt", [*texts[:1234], "", *texts[1234:]])


@pytest.fixture(scope="module")
def local(artifact: Artifact, source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("local") / "out"
    run(artifact, [source], output)
    return output


@pytest.fixture(scope="module")
def client_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.fixture(scope="module")
def cluster(home: Path, client_port: int) -> Iterator[Any]:
    """A head that reads and two nodes that work; `home` is the nodes' own, so the artifact must be sent there.

    It asks for a token of its own, as every cluster that others can reach should.
    """
    with pytest.MonkeyPatch.context() as patch:
        # Ray reads these once, when it is imported.
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 1, "include_dashboard": False, "ray_client_server_port": client_port}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        try:
            for _ in range(NODES):
                cluster.add_node(num_cpus=1)
            cluster.wait_for_nodes()
            yield cluster
        finally:
            cluster.shutdown()


@pytest.fixture
def at_first_part(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Has something happen once, as soon as the first part is published."""

    def set_up(action: Callable[[], None]) -> None:
        publish, happened = RunFolder.publish, []

        def publish_and_act(folder: RunFolder, receipt: PartReceipt) -> None:
            publish(folder, receipt)
            if not happened:
                happened.append(receipt.index)
                action()

        monkeypatch.setattr(RunFolder, "publish", publish_and_act)

    return set_up


def on(cluster: Any, **options: Any) -> WorkerOptions:
    return WorkerOptions(engine="ray", address=cluster.address, threads=1, **options)


def same(output: Path, local: Path) -> None:
    require_same_parts(output, local, [row for row in range(ROWS) if row != 1234])
    assert (output / "rejects.jsonl").read_bytes() == (local / "rejects.jsonl").read_bytes()


def actors() -> list[psutil.Process]:
    processes = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if any("MapWorker" in word for word in process.cmdline()):
                processes.append(process)
    return processes


def test_many_nodes_give_the_same_bits_as_the_local_engine(
    cluster: Any, artifact: Artifact, source: Path, local: Path, home: Path, tmp_path: Path
) -> None:
    manifest = run(artifact, [source], tmp_path / "out", work=on(cluster))
    assert (manifest.engine, manifest.workers, manifest.lanes) == ("ray", NODES + 1, 1)
    assert (manifest.rows_written, manifest.restarts) == (ROWS - 1, 0)
    same(tmp_path / "out", local)
    landed = [path.name for path in (home / "store").iterdir()]
    assert landed == [artifact.directory.name]


def test_a_killed_worker_loses_no_row(
    cluster: Any, artifact: Artifact, source: Path, local: Path, tmp_path: Path, at_first_part: Any
) -> None:
    killed: list[int] = []

    def kill() -> None:
        victim = actors()[0]
        killed.append(victim.pid)
        os.kill(victim.pid, signal.SIGKILL)

    at_first_part(kill)
    run(artifact, [source], tmp_path / "out", work=on(cluster))
    assert killed
    same(tmp_path / "out", local)


def test_a_removed_node_loses_no_row(
    cluster: Any, artifact: Artifact, source: Path, local: Path, tmp_path: Path, at_first_part: Any
) -> None:
    extra = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    at_first_part(lambda: cluster.remove_node(extra, allow_graceful=False))
    run(artifact, [source], tmp_path / "out", work=on(cluster))
    assert len(cluster.list_all_nodes()) == NODES + 1
    same(tmp_path / "out", local)


def test_a_killed_driver_is_resumed_and_a_damaged_part_made_anew(
    cluster: Any, artifact: Artifact, source: Path, local: Path, home: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    arguments = [str(artifact.directory), "--input", source, "--output", output, "--part-rows", "100"]
    options = ["--rows", "padded", "--engine", "ray", "--address", cluster.address, "--threads", "1"]
    command = [*COMMAND, "encode", *map(str, arguments), *options]
    with (tmp_path / "log").open("wb") as log:
        driver = subprocess.Popen(command, env=environment(home), stdout=log, stderr=log)
        try:
            assert eventually(lambda: len(list((output / "receipts").glob("*.json"))) > 3, within_s=120), (
                tmp_path / "log"
            ).read_text()
        finally:
            driver.kill()
            driver.wait()
    done = len(list((output / "receipts").glob("*.json")))
    assert done < ROWS // 100
    first = output / "parts" / "part-00000.parquet"
    first.write_bytes(first.read_bytes()[:-1] + b"X")
    manifest = run(artifact, [source], output, work=on(cluster), resume=True)
    assert manifest.parts_reused == done - 1
    same(output, local)


def test_a_full_disk_is_waited_for(
    cluster: Any, artifact: Artifact, source: Path, local: Path, small_disk: Path, listening: Any
) -> None:
    filler = small_disk / "filler"
    progress = listening(lambda text: filler.unlink(missing_ok=True))
    manifest = run(artifact, [source], small_disk / "out", work=on(cluster), progress=progress)
    assert manifest.waits_for_disk == 1
    same(small_disk / "out", local)


def test_a_cluster_is_used_from_outside_by_ray_client(
    cluster: Any, client_port: int, artifact: Artifact, source: Path, local: Path, home: Path, tmp_path: Path
) -> None:
    options = [
        "--part-rows",
        "100",
        "--rows",
        "padded",
        "--engine",
        "ray",
        "--address",
        f"ray://127.0.0.1:{client_port}",
    ]
    printed = trimaran_json(
        "encode", artifact.directory, "--input", source, "--output", tmp_path / "out", *options, home=home
    )
    assert (printed["engine"], printed["workers"]) == ("ray", NODES + 1)
    same(tmp_path / "out", local)


def test_a_ray_of_its_own_is_started_and_stopped(
    artifact: Artifact, source: Path, local: Path, home: Path, tmp_path: Path
) -> None:
    before = {process.pid for process in psutil.process_iter()}
    options = ["--part-rows", "100", "--rows", "padded", "--engine", "ray", "--workers", "1"]
    printed = trimaran_json(
        "encode", artifact.directory, "--input", source, "--output", tmp_path / "out", *options, home=home
    )
    assert (printed["engine"], printed["workers"]) == ("ray", 1)
    same(tmp_path / "out", local)

    def left() -> list[str]:
        # Processes end while they are listed: `process_iter` leaves those out if it reads the names itself.
        names = {process.pid: process.info["name"] for process in psutil.process_iter(["name"])}
        return [name for pid, name in names.items() if pid not in before and "ray" in (name or "")]

    assert eventually(lambda: not left()), left()


def test_an_address_without_a_cluster_is_named(artifact: Artifact, source: Path, tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"No Ray cluster at 127\.0\.0\.1:1"):
        run(artifact, [source], tmp_path / "out", work=WorkerOptions(engine="ray", address="127.0.0.1:1"))
