"""What a report and a repository say of candidates that need more than a file: fewer instructions, a cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import children
from tests.benchmarks.fakes import row
from tests.quantize.tensorrt.engines import QUIET, World
from tests.tiny import tiny_artifact
from trimaran.benchmarks.report.choice import failed_row, judged_row
from trimaran.core import isolation
from trimaran.core.config_pbtxt import config_from_pbtxt, pbtxt_from_config
from trimaran.core.errors import ChildError
from trimaran.model_repository.stages import tensor_stage
from trimaran.pipeline.making import make_one_candidate
from trimaran.pipeline.outcomes import judged
from trimaran.pipeline.race import restriction_notes
from trimaran.quantize.candidates import candidate

FEWER = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI"}


@pytest.fixture
def advertising(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """A machine where every child dies of SIGILL unless it is told to use fewer instructions."""
    tried = list[dict[str, str]]()

    class Worker(isolation.Worker):
        def __init__(self, *, environment: Any = None, **settings: Any) -> None:
            tried.append(dict(environment or {}))
            super().__init__(environment=environment, **settings)

        def ask(self, deadline_s: float, *, target: str, **request: Any) -> Any:
            nothing: Any = {"arguments": [], "keywords": {}}
            super().ask(60.0, target=isolation.target_of(children.advertise_too_much), **nothing)
            return super().ask(deadline_s, target=target, **request)

    monkeypatch.setattr(isolation, "Worker", Worker)
    return tried


def test_a_candidate_that_dies_of_sigill_is_made_with_fewer_instructions_and_says_so(
    world: World, advertising: list[dict[str, str]]
) -> None:
    parent = world.exported("bert")
    made = make_one_candidate(str(parent.directory), "openvino-fp32", None, 1, store=world.store, progress=QUIET)
    assert [found.get("ONEDNN_MAX_CPU_ISA") for found in advertising] == [None, "AVX512_CORE_FP16", "AVX512_CORE_VNNI"]
    assert made.execution_environment == FEWER
    assert judged_row("openvino-fp32", made, None, environment=FEWER).execution_environment == FEWER


def test_the_report_tells_plainly_which_candidate_died_and_how_it_runs_now(tmp_path: Path) -> None:
    artifact, quality = tiny_artifact(tmp_path), row("true").quality
    assert quality is not None
    outcomes = [
        judged(candidate("openvino-fp32"), artifact, quality),
        judged(candidate("openvino-int8-mixed"), artifact, quality, FEWER),
    ]
    (note,) = restriction_notes(outcomes)
    assert note.startswith("openvino-int8-mixed died of SIGILL with the instructions this CPU advertises")
    assert note.endswith("will be served with ONEDNN_MAX_CPU_ISA=AVX512_CORE_VNNI.")


def test_a_candidate_that_dies_whatever_it_is_told_is_rejected_with_the_signal() -> None:
    def attempt(restriction: dict[str, str]) -> None:
        with isolation.Worker(environment=restriction) as worker:
            worker.call(children.die, 60.0, number=4)

    with pytest.raises(ChildError) as ended:
        isolation.first_restriction_that_runs(attempt)
    row = failed_row("openvino-bf16", "openvino", "bf16", ended.value)
    assert (row.verdict, "SIGILL" in row.reason) == ("failed", True)


def test_tensorrt_inside_onnx_runtime_keeps_its_engines_on_the_server(tmp_path: Path) -> None:
    artifact = tiny_artifact(tmp_path, backend="onnxruntime_tensorrt")
    text = pbtxt_from_config(tensor_stage("m", artifact, rows="padded", threads=2))
    (accelerator,) = config_from_pbtxt(text).accelerators
    assert "execution_accelerators" in text and "gpu_execution_accelerator" in text
    assert accelerator.name == "tensorrt"
    assert accelerator.parameters["trt_engine_cache_enable"] == "true"
    assert accelerator.parameters["trt_engine_cache_path"] == f"/plans/{artifact.digest[:16]}"
    # One profile for every input: TensorRT builds once, when the model is loaded.
    assert accelerator.parameters["trt_profile_min_shapes"] == "input_ids:1x1,attention_mask:1x1"
    assert accelerator.parameters["trt_profile_opt_shapes"] == "input_ids:1x8,attention_mask:1x8"
    assert accelerator.parameters["trt_profile_max_shapes"] == "input_ids:4x16,attention_mask:4x16"


def test_two_artifacts_never_share_the_engines_that_onnx_runtime_caches(tmp_path: Path) -> None:
    folders = {
        tensor_stage("m", tiny_artifact(tmp_path, task=task, backend="onnxruntime_tensorrt"), rows="padded", threads=2)
        .accelerators[0]
        .parameters["trt_engine_cache_path"]
        for task in ("embedding", "text-classification")
    }
    assert len(folders) == 2


def test_a_plan_serves_on_one_gpu_with_every_profile(tmp_path: Path) -> None:
    facts = {"engine": {"profiles": [{}, {}]}}
    artifact = tiny_artifact(tmp_path, backend="tensorrt").model_copy(update={"details": facts})
    text = pbtxt_from_config(tensor_stage("m", artifact, rows="padded", threads=2))
    group = config_from_pbtxt(text).instance_group
    assert group is not None and (group.kind, group.gpus, group.profiles) == ("KIND_GPU", (0,), ("0", "1"))
    assert 'profile: "0"' in text and 'profile: "1"' in text and "gpus: 0" in text
