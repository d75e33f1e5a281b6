"""`trimaran deploy --target`: what is proven, built and predicted on a machine without a GPU."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from tests.commands import trimaran
from tests.export.zoo import saved_model
from tests.texts import judging_texts
from trimaran.benchmarks.report.render_prepared import prepared_markdown, prepared_table
from trimaran.core.artifact import load_artifact
from trimaran.core.config import deploy_config
from trimaran.core.config_pbtxt import CONFIG_FILE, read_config
from trimaran.core.errors import UnavailableError, UsageError
from trimaran.core.progress import SilentProgress
from trimaran.core.serving_json import read_serving
from trimaran.core.store import Store
from trimaran.judging.prepared import PREPARED_FOLDER, read_judging, read_prepared
from trimaran.judging.quality import assess
from trimaran.model_repository.check import problems
from trimaran.model_repository.check_prepared import prepared_states
from trimaran.model_repository.versions import unproven_served
from trimaran.pipeline import prepare as prepare_module
from trimaran.pipeline.prepare import PrepareResult, plan_preparation, prepare
from trimaran.quantize.half.on_cpu import half_on_cpu

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> PrepareResult:
    """A tiny BERT in FP16 and INT8, prepared for a target that the builder knows and for one that it does not."""
    pytest.importorskip("tensorrt_rtx")
    root = tmp_path_factory.mktemp("prepared")
    model = saved_model(root / "tiny", "bert", "embedding", num_attention_heads=2)
    config = deploy_config(
        {
            "model": str(model),
            "task": "embedding",
            "target": "8.9, 9.0",
            "candidates": "onnx-fp16,onnx-int8-qdq",
            # Random weights round badly: the gates of this test are loose on purpose, the line is the same.
            "gates": {
                "mean_cosine_distance": 0.2,
                "tail_cosine_distance": 1.0,
                "tail_similarity_change": 1.0,
                "epsilon_recall": 0.0,
                "rank_correlation": 0.0,
            },
            "judging": str(judging_texts(root / "judging.jsonl", count=400)),
            "sequence": (1, 16, 48),
            "batch": (1, 2, 4),
            "output": str(root / "repository"),
            "report": str(root / "report"),
            "name": "tiny",
        }
    )
    return prepare(config, store=Store(root / "store"), progress=SilentProgress(), command=("trimaran", "deploy"))


def version_of(result: PrepareResult) -> Path:
    deployment = result.deployment
    return deployment.repository / deployment.name / str(deployment.version)


def test_a_prepared_repository_is_sound_and_says_what_it_lacks(result: PrepareResult) -> None:
    assert problems(result.deployment.repository) == ()
    (state,) = prepared_states(result.deployment.repository)
    assert str(state) == (
        "tiny version 1 is prepared for 8.9, 9.0. Missing: a plan that TensorRT built on the serving machine; "
        "answers and times of a GPU; any plan for 9.0. Run `trimaran finish` on the machine with the GPU."
    )


def test_a_target_that_the_builder_does_not_know_is_said_in_its_words(result: PrepareResult) -> None:
    row = next(row for row in result.prepared.candidates if row.name == result.prepared.chosen)
    known, unknown = row.builds
    assert known.built and all(check.holds for check in known.receipt)
    assert not unknown.built and unknown.kernels_for == "8.9"
    assert "cannot build for compute capability 9.0. It knows 12.0, 12.1, 7.5, 8.0" in unknown.reason


def test_every_time_is_called_predicted(result: PrepareResult) -> None:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(prepared_table(result.prepared))
    assert "predicted milliseconds (nothing was measured)" in console.export_text()
    assert "predicted, not measured: at least" in result.prepared.headline
    assert "**No time on this page was measured.**" in prepared_markdown(result.prepared)
    facts = json.loads(json.dumps(result.facts()))
    assert facts["state"] == "prepared"
    for candidate in facts["candidates"]:
        for build in candidate["builds"]:
            assert set(build["predicted_ms"]) == {"L4" if build["target"] == "8.9" else "H100 SXM"}
    assert "speedup" not in json.dumps(facts)


def test_the_texts_and_answers_that_travel_give_the_same_verdict_again(result: PrepareResult, tmp_path: Path) -> None:
    folder = version_of(result) / PREPARED_FOLDER
    prepared = read_prepared(version_of(result))
    texts, answers = read_judging(folder)
    row = next(row for row in prepared.candidates if row.name == "onnx-fp16")
    assert row.quality is not None
    # In the form in which it was judged: it rounds at other places than the graph that travels (decision 222).
    judged = half_on_cpu(load_artifact(folder / "candidates" / row.name), Store(tmp_path / "store"))
    again = assess(judged, answers, texts, gates=prepared.gates, threads=1, deadline_s=200)
    assert again.holds and again.rows == row.quality.rows
    assert again.metrics["mean_cosine_distance"] == pytest.approx(row.quality.metrics["mean_cosine_distance"], abs=1e-6)


def test_a_changed_file_of_a_prepared_version_is_found(result: PrepareResult, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    shutil.copytree(result.deployment.repository, repository)
    answers = repository / "tiny" / "1" / PREPARED_FOLDER / "eager.npz"
    answers.write_bytes(answers.read_bytes()[:-1])
    assert [problem.code for problem in problems(repository)] == ["prepared-damaged", "digest-mismatch"]


def test_the_official_container_builds_once_at_load_into_a_folder_of_this_artifact(result: PrepareResult) -> None:
    config = read_config(result.deployment.repository / "tiny_onnxruntime" / CONFIG_FILE)
    (accelerator,) = config.accelerators
    assert config.on_gpu and config.warmups
    assert accelerator.parameters["trt_profile_max_shapes"].startswith("input_ids:4x48,attention_mask:4x48")
    chosen = load_artifact(version_of(result) / PREPARED_FOLDER / "candidates" / result.prepared.chosen)
    assert accelerator.parameters["trt_engine_cache_path"] == f"/plans/{chosen.digest[:16]}"


def test_on_an_rtx_gpu_the_built_plan_can_be_laid_out_at_once(result: PrepareResult, tmp_path: Path) -> None:
    plan = version_of(result) / PREPARED_FOLDER / "plans" / f"{result.prepared.chosen}-8.9"
    told = trimaran(
        "repository", "lay-out", plan, "--name", "tiny", "-o", tmp_path / "r", "--unproven", home=tmp_path / "home"
    )
    assert told.returncode == 0, told.stderr
    serving = read_serving(tmp_path / "r" / "tiny" / "1")
    assert (serving.backend, serving.entry) == ("tensorrt_rtx", "model.plan")
    assert serving.engine_options["identity"]["compute_capabilities"] == ["8.9"]
    assert not serving.engine_options["identity"]["gpu"], "any GPU of this compute capability opens it"
    assert problems(tmp_path / "r") == () and unproven_served(tmp_path / "r") == ("tiny version 1",)


def test_what_cannot_be_prepared_is_refused_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="openvino-fp32 is no graph for TensorRT"):
        plan_preparation(deploy_config({"model": "m", "target": "8.9", "candidates": "openvino-fp32"}))
    with pytest.raises(UsageError, match="target"):
        deploy_config({"model": "m", "target": "ada"})
    monkeypatch.setattr(prepare_module, "installed_version", lambda runtime: None)
    with pytest.raises(UnavailableError, match="tensorrt_rtx is not installed"):
        plan_preparation(deploy_config({"model": "m", "target": "8.9"}))
