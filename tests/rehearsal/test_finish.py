"""`trimaran finish` in a rehearsal: what it publishes, and how each failure of a GPU ends."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from tests.rehearsal.conftest import Rehearsal
from trimaran.core.config_pbtxt import CONFIG_FILE, read_config, write_config
from trimaran.core.serving_json import read_serving
from trimaran.judging.golden import read_golden

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def finished(rehearsal: Rehearsal, tmp_path_factory: pytest.TempPathFactory) -> Rehearsal:
    """Both models, finished where torch and transformers cannot be imported."""
    world = rehearsal.copy(tmp_path_factory.mktemp("finished"))
    results = world.said("finish", world.repository, "--quick", REHEARSAL_WITHOUT_TORCH="1")["finished"]
    assert [(row["name"], row["version"], row["known"]) for row in results] == [
        ("classes", 2, False),
        ("tiny", 2, False),
    ]
    for row in results:
        assert not row["known"]
        assert row["identity"]["gpu"] == "Rehearsal GPU" and row["identity"]["version"] == "11.2.1.5"
        assert {item["name"]: item["verdict"] for item in row["candidates"]}[row["chosen"]] == "chosen"
        for item in row["candidates"]:
            assert set(item["gpu_ms"]) == set(item["measured_ms"]) != set()
            assert all(set(parts) == {"copy_in", "kernels", "copy_out"} for parts in item["gpu_ms"].values())
            assert item["gpu_memory_bytes"] > 0
        eager, *by_events, served = row["notes"]
        assert eager == "Eager PyTorch was not measured on the GPU: torch is not installed."
        assert len(by_events) == 2 and all("by the GPU's events at" in note for note in by_events), (
            "graphs were captured"
        )
        assert served.startswith(f"Served, 2 processes open {row['chosen']}: ")
    return world


def test_a_finished_repository_is_sound_and_a_second_run_does_nothing(finished: Rehearsal) -> None:
    check = finished.said("repository", "check", finished.repository)
    assert check["problems"] == [] and check["prepared"] == []
    again = finished.said("finish", finished.repository)["finished"]
    assert [(row["version"], row["known"]) for row in again] == [(2, True), (2, True)]
    assert _versions(finished) == ["1", "2"]


def test_one_repository_serves_unlike_gpus(finished: Rehearsal, tmp_path: Path, triton: None) -> None:
    """The second GPU's version keeps the plan of the first in a folder by its identity, and each opens its own."""
    world = finished.copy(tmp_path)
    (other,) = world.said("finish", world.repository, "tiny", "--quick", "--device", "cuda:1")["finished"]
    assert (other["version"], other["known"], other["identity"]["gpu"]) == (3, False, "Second GPU")
    kept = world.repository / "tiny" / "3" / "plans" / "rehearsal-gpu-8.6-tensorrt-11.2.1.5"
    assert (kept / "model.plan").is_file()
    (first,) = world.said("finish", world.repository, "tiny")["finished"]
    assert (first["version"], first["known"]) == (3, True), "the first GPU still has its plan"
    # On a machine whose only GPU is like the first: the same version answers there.
    assert world.said("repository", "check", world.repository, TRIMARAN_REHEARSAL="one-device")["problems"] == []
    with world.served(TRIMARAN_REHEARSAL="one-device") as url:
        done = world.run("verify", url, "-r", world.repository)
    assert done.returncode == 0, done.stderr


def test_the_plans_are_served_by_the_real_triton_and_verified(finished: Rehearsal, triton: None) -> None:
    with finished.served() as url:
        assert finished.said("query", "tiny", "a good cat", "--url", url)
        assert finished.said("query", "classes", "a good cat", "--url", url)
        done = finished.run("verify", url, "-r", finished.repository)
    assert done.returncode == 0, done.stderr


def test_a_plan_of_its_own_backend_is_published_as_it_was_served(
    rehearsal: Rehearsal, tmp_path: Path, triton: None
) -> None:
    """`--separate`, for the container: the text stage calls the plan. Here a stage stands in for Triton's backend."""
    world = rehearsal.copy(tmp_path)
    done = world.run("finish", world.repository, "tiny", "--quick", "--separate", "--json")
    assert done.returncode == 0, done.stderr
    assert "served check" in done.stderr and "not done" not in done.stderr
    plan, texts = (read_config(world.repository / name / CONFIG_FILE) for name in ("tiny_tensorrt", "tiny"))
    assert plan.instance_group is not None and texts.instance_group is not None
    assert (plan.instance_group.kind, plan.instance_group.gpus) == ("KIND_GPU", (0,))
    assert texts.instance_group.count == 4, "one process tokenises too slowly for a GPU"
    serving = read_serving(world.repository / "tiny_tensorrt" / "2")
    assert serving.engine_options["exact_shapes"], "judged and timed as Triton's backend runs it"
    # This Triton finds no GPU, so it would refuse the kind. The stage opens the one of the rehearsal by itself.
    group = plan.instance_group.model_copy(update={"kind": "KIND_CPU", "gpus": ()})
    write_config(world.repository / "tiny_tensorrt" / CONFIG_FILE, plan.model_copy(update={"instance_group": group}))
    server = world.said("serve", world.repository, "--model", "tiny", "--free-ports", "--detach")
    try:
        done = world.run("verify", f"127.0.0.1:{server['grpc_port']}", "tiny", "-r", world.repository)
    finally:
        world.run("stop", world.repository)
    assert done.returncode == 0, done.stderr


def test_a_plan_of_another_gpu_is_not_opened(finished: Rehearsal, triton: None) -> None:
    command = ["serve", finished.repository, "--free-ports", "--detach"]
    done = finished.run(*command, TRIMARAN_REHEARSAL_GPU="Other GPU")
    assert done.returncode == 6, done.stdout
    assert "built on Rehearsal GPU, here is Other GPU. Run `trimaran finish`" in done.stderr


def test_the_golden_bundle_has_the_gpus_own_answers_beside_eagers(rehearsal: Rehearsal, tmp_path: Path) -> None:
    world = rehearsal.copy(tmp_path)
    world.said("finish", world.repository, "tiny", "--quick", TRIMARAN_REHEARSAL="own-rounding")
    prepared, finished = (read_golden(world.repository / "tiny" / version / "golden.json") for version in "12")
    assert (finished.rows, finished.answers) == (prepared.rows, prepared.answers), "eager's answers travelled along"
    cpu, gpu = (golden.proven_tensors["EMBEDDING"] for golden in (prepared, finished))
    assert gpu.shape == cpu.shape and 1e-4 < np.abs(gpu - cpu).max() < 0.1, "answered by the plan on this GPU"
    assert finished.observed["mean_cosine_distance"] > prepared.observed["mean_cosine_distance"]


@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [
        ("no-device", 3, "the driver shows no GPU"),
        ("old-driver", 3, "install 580.65.06 or newer"),
        ("old-gpu", 3, "needs 7.5 or newer"),
        ("null-builder", 4, "made no builder"),
        ("refused-graph", 4, "tensorrt cannot read the graph. It says:"),
        ("build-out-of-memory", 4, "--workspace 2000"),
        ("null-context", 4, "made no execution context"),
        ("out-of-memory", 4, "CUDA_ERROR_OUT_OF_MEMORY"),
        ("lost-device", 4, "CUDA_ERROR_LAUNCH_FAILED"),
        ("wrong-numbers", 4, "Its answers drift on this GPU. Mean 1−cos"),
    ],
)
def test_a_failure_says_its_cause_and_leaves_the_prepared_version(
    rehearsal: Rehearsal, tmp_path: Path, fault: str, code: int, words: str
) -> None:
    world = rehearsal.copy(tmp_path)
    done = world.run("finish", world.repository, "tiny", TRIMARAN_REHEARSAL=fault)
    assert done.returncode == code and words in done.stderr, done.stderr
    assert _versions(world) == ["1"]


def test_a_repository_that_is_read_only_is_finished_in_a_copy(rehearsal: Rehearsal, tmp_path: Path) -> None:
    """As the init container and the image's entry point do it. A second start finds the finished copy."""
    world = rehearsal.copy(tmp_path)
    command = ["finish", world.repository, "classes", "--quick", "--into", tmp_path / "plans" / "models"]
    (model,) = world.said(*command)["finished"]
    assert (model["version"], model["known"]) == (2, False)
    assert not (world.repository / "classes" / "2").exists()
    (again,) = world.said(*command)["finished"]
    assert (again["version"], again["known"]) == (2, True)


def test_a_failed_capture_costs_no_answer(rehearsal: Rehearsal, tmp_path: Path) -> None:
    world = rehearsal.copy(tmp_path)
    command = ["finish", world.repository, "classes", "--quick"]
    (model,) = world.said(*command, TRIMARAN_REHEARSAL="failed-capture")["finished"]
    assert model["version"] == 2
    said = [note for note in model["notes"] if "runs without CUDA graphs, one kernel after another" in note]
    assert len(said) == 2 and all("CUDA_ERROR_STREAM_CAPTURE_INVALIDATED" in note for note in said)


def test_without_a_driver_it_says_so(rehearsal: Rehearsal) -> None:
    done = rehearsal.run("finish", rehearsal.repository, TRIMARAN_CUDA_DRIVER="/nowhere/libcuda.so.1")
    assert done.returncode == 3 and "no NVIDIA driver" in done.stderr


def test_a_plan_that_takes_too_long_is_given_up_and_a_killed_run_leaves_nothing_half_made(
    rehearsal: Rehearsal, tmp_path: Path
) -> None:
    world = rehearsal.copy(tmp_path)
    command = ["finish", str(world.repository), "classes"]
    done = world.run(*command, "--deadline", "3", TRIMARAN_REHEARSAL="slow-build")
    assert done.returncode == 4 and "3 s" in done.stderr, done.stderr
    process = subprocess.Popen(
        [str(world.python), "-m", "trimaran", *command],
        env=world.environment(TRIMARAN_REHEARSAL="slow-build"),
        cwd=tmp_path,
        stderr=subprocess.DEVNULL,
    )
    progress = world.home / "store" / "logs"
    deadline_s = time.monotonic() + 120
    while not list(progress.glob("*.progress")) and time.monotonic() < deadline_s:
        time.sleep(0.2)
    assert list(progress.glob("*.progress")), "the build has begun, and shows where it is"
    process.send_signal(signal.SIGKILL)
    process.wait(30)
    assert world.said("repository", "check", world.repository)["problems"] == []
    (model,) = world.said(*command, "--quick")["finished"]
    assert (model["version"], model["known"]) == (2, False)


def _versions(world: Rehearsal) -> list[str]:
    return sorted(path.name for path in (world.repository / "tiny").iterdir() if path.name.isdigit())
