"""`trimaran deploy --device cuda` in a rehearsal: the whole line, from a trained model to a rolled-back version."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.export.zoo import saved_model
from tests.rehearsal.conftest import Rehearsal
from tests.texts import judging_texts
from trimaran.core.config_pbtxt import CONFIG_FILE, read_config
from trimaran.core.serving_json import read_serving

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
# Random weights round badly: the gates are loose on purpose, the line is the same.
MODELS: dict[str, tuple[str, str, dict[str, float]]] = {
    "vectors": (
        "embedding",
        "tensorrt-fp16,tensorrt-bf16,tensorrt-int8",
        {
            "mean_cosine_distance": 0.2,
            "tail_cosine_distance": 1.0,
            "tail_similarity_change": 1.0,
            "epsilon_recall": 0.0,
        },
    ),
    "labels": (
        "text-classification",
        "tensorrt-fp16",
        {"label_agreement": 0.0, "mean_probability_change": 0.2, "tail_probability_change": 1.0},
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_deployed_served_verified_promoted_and_rolled_back(
    machine: Rehearsal, tmp_path: Path, triton: None, name: str
) -> None:
    task, candidates, gates = MODELS[name]
    world = Rehearsal(machine.python, machine.driver, tmp_path / "home", tmp_path / "repository")
    # The tails of three candidates are proven with 408 different texts.
    judging = judging_texts(tmp_path / "judging.jsonl", count=420)
    deploy = [
        "deploy", "-m", saved_model(tmp_path / name, "bert", task, num_attention_heads=2), "--task", task,
        "--name", name, "--device", "cuda", "--budget", 5, "--quick", "--candidates", candidates, "--judging", judging,
        *(f"--gate={metric}={limit}" for metric, limit in gates.items()),
        "--sequence", 1, 16, 48, "--batch", 1, 2, 4, "-o", world.repository, "--report", tmp_path / "report",
    ]  # fmt: skip
    said = world.said(*deploy)
    assert said["served"], "the answers over the wire were compared"
    assert not [row["reason"] for row in said["candidates"] if row["verdict"] not in ("chosen", "passed")]
    assert {row["name"] for row in said["candidates"]} == set(candidates.split(","))
    assert (
        "faster than eager PyTorch on the CPU" in said["verdict"] or "eager PyTorch on the CPU here" in said["verdict"]
    )
    report = (tmp_path / "report" / "report.md").read_text(encoding="utf-8")
    assert "Eager PyTorch was not measured on the GPU: torch" in report
    assert report.count("by the GPU's events at") == len(candidates.split(","))
    assert "processes open" in report and "of GPU memory, and a CUDA context each" in report
    serving, config = read_serving(world.repository / name / "1"), read_config(world.repository / name / CONFIG_FILE)
    assert serving.backend == "tensorrt" and serving.engine_options["identity"]["gpu"] == "Rehearsal GPU"
    assert config.instance_group is not None and config.instance_group.kind == "KIND_CPU"
    plan = read_config(world.repository / f"{name}_tensorrt" / CONFIG_FILE)
    assert plan.instance_group is not None
    assert (plan.instance_group.kind, plan.instance_group.gpus) == ("KIND_GPU", (0,))
    assert world.said(*deploy)["unchanged"]
    assert world.said(*deploy, "--objective", "throughput", "--no-serve-check")["version"] == 2
    with world.served() as url:
        assert world.said("query", name, "a good cat", "--url", url)
        promoted = world.run("promote", name, 2, "-r", world.repository)
        assert promoted.returncode == 0, promoted.stderr
        done = world.run("verify", url, "-r", world.repository)
        assert done.returncode == 0, done.stderr
        back = world.run("rollback", name, "-r", world.repository)
        assert back.returncode == 0, back.stderr
        assert world.said("query", name, "a good cat", "--url", url)


@pytest.mark.parametrize(("gpu", "rows"), [("NVIDIA GeForce RTX 4090", 2), ("NVIDIA A10", 0)])
def test_plans_of_tensorrt_rtx_compete_on_rtx_gpus(machine: Rehearsal, tmp_path: Path, gpu: str, rows: int) -> None:
    command = ["deploy", "-m", saved_model(tmp_path / "m", "bert", "embedding"), "--device", "cuda", "--dry-run"]
    said = machine.said(*command, TRIMARAN_REHEARSAL_GPU=gpu)
    assert sum(name.startswith("tensorrt-rtx-") for name in said["candidates"]) == rows
    assert {"tensorrt-fp16", "tensorrt-bf16", "tensorrt-int8", "onnxruntime-cuda-fp16"} <= set(said["candidates"])


@pytest.mark.parametrize(
    ("flags", "fault", "code", "words"),
    [
        (["--device", "cuda:7"], "", 3, "there is no GPU 7: the driver shows 2"),
        (["--device", "cuda"], "old-driver", 3, "the driver is too old"),
        (["--device", "cuda", "--candidates", "openvino-fp32"], "", 2, "openvino-fp32 would run on the CPU"),
        (["--device", "gpu"], "", 2, "device"),
    ],
)
def test_a_device_that_cannot_be_used_is_refused_before_any_work(
    machine: Rehearsal, flags: list[str], fault: str, code: int, words: str
) -> None:
    done = machine.run("deploy", "-m", "nowhere", *flags, "--dry-run", TRIMARAN_REHEARSAL=fault)
    assert done.returncode == code and words in done.stderr, done.stderr
