"""`finish` in a rehearsal of NVIDIA's image, where Python has no TensorRT: `trtexec` builds, Triton answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rehearsal.conftest import Rehearsal
from trimaran.core.config_pbtxt import CONFIG_FILE, read_config

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.parametrize("name", ["tiny", "classes"])
def test_a_plan_of_trtexec_is_judged_timed_and_checked_through_triton(
    image: Rehearsal, tmp_path: Path, name: str
) -> None:
    world = image.copy(tmp_path)
    done = world.run("finish", world.repository, name, "--quick", REHEARSAL_WITHOUT_TORCH="1")
    assert done.returncode == 0, done.stderr
    assert "Python has no TensorRT here. So trtexec built the plans" in done.stdout
    assert "served check" in done.stderr and "not done" not in done.stderr
    (model,) = world.said("finish", world.repository, name)["finished"]
    assert (model["version"], model["known"], model["identity"]["version"]) == (2, True, "11.2.1.5")
    for row in model["candidates"]:
        assert row["verdict"] in ("chosen", "passed") and set(row["measured_ms"]) and row["gpu_ms"] == {}
        assert row["receipt"], "trtexec's log has the table of fused layers"
    plan = read_config(world.repository / f"{name}_tensorrt" / CONFIG_FILE)
    assert plan.backend == "tensorrt" and plan.instance_group is not None
    assert (plan.instance_group.kind, plan.instance_group.gpus) == ("KIND_GPU", (0,))
    assert world.said("repository", "check", world.repository)["problems"] == []


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("build-out-of-memory", "--workspace 2000"),
        ("refused-graph", "trtexec built no engine. It says: (deserializeOnnxModel)"),
        ("null-context", "made no execution context"),
        ("wrong-numbers", "Its answers drift on this GPU. Mean 1−cos"),
    ],
)
def test_a_failure_says_its_cause(image: Rehearsal, tmp_path: Path, fault: str, words: str) -> None:
    world = image.copy(tmp_path)
    done = world.run("finish", world.repository, "tiny", TRIMARAN_REHEARSAL=fault)
    assert done.returncode == 4 and words in done.stderr, done.stderr
    assert not (world.repository / "tiny" / "2").exists()


def test_without_a_triton_that_opens_plans_it_names_the_wheel(image: Rehearsal) -> None:
    done = image.run("finish", image.repository, TRIMARAN_TRITON="/nowhere")
    assert done.returncode == 3 and "pip install 'tensorrt==11.2.1.*'" in done.stderr, done.stderr
