"""Two real models on a real GPU, at `strict`. `make gpu-check` runs it, and keeps the reports."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.commands import trimaran_json
from tests.end_to_end.conftest import MINILM
from trimaran.core.devices import gpu_lacks

pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.timeout(7200)]
# Where reports and the builder's logs are kept.
RESULTS_VARIABLE = "TRIMARAN_GPU_RESULTS"


@pytest.mark.parametrize("name", ["minilm", "gender"])
def test_a_model_keeps_the_strict_gates_on_this_gpu(request: pytest.FixtureRequest, tmp_path: Path, name: str) -> None:
    if reason := gpu_lacks():
        pytest.skip(reason)
    model = MINILM if name == "minilm" else request.getfixturevalue("classifier_folder")
    results = Path(os.environ.get(RESULTS_VARIABLE) or tmp_path) / name
    said = trimaran_json(
        "deploy", "-m", model, "--name", name, "--device", "cuda", "--fidelity", "strict", "--report", results,
        home=tmp_path / "home", cwd=tmp_path,
    )  # fmt: skip
    for log in (tmp_path / "home" / "store" / "logs").glob("tensorrt-engine-*.log"):
        shutil.copyfile(log, results / log.name)
    assert said["winner"] and said["served"]
