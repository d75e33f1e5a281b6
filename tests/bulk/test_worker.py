from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.bulk import shapes
from tests.bulk.worlds import sentences, tiny
from trimaran.bulk.worker import ENGINE_ENVIRONMENT, KEPT_KERNELS, EncodeOptions, EncodeWorker, bulk_options, lanes_for
from trimaran.core import isolation
from trimaran.core.artifact import Artifact
from trimaran.core.errors import UsageError


def test_the_number_of_lanes_changes_no_bit(artifact: Artifact) -> None:
    texts = sentences(350)

    def worked(lanes: int, rows: Any) -> Any:
        return (
            EncodeWorker(str(artifact.directory), lanes=lanes, threads=1, how=EncodeOptions(rows=rows))
            .encoded(texts)
            .vectors
        )

    assert np.array_equal(worked(1, "equal-length"), worked(3, "equal-length"))
    np.testing.assert_allclose(worked(2, "alone"), worked(3, "padded"), atol=1e-6)


def test_lanes_give_way_to_memory(artifact: Artifact) -> None:
    assert lanes_for(artifact, 8, 1 << 40) == (8, 1)
    assert lanes_for(artifact, 8, 12 * artifact.size_bytes) == (2, 4)
    assert lanes_for(artifact, 8, 0) == (1, 8)


def test_ever_new_shapes_take_no_more_memory(tmp_path: Path) -> None:
    def grown(folder: str, environment: dict[str, str], *, bounded: bool) -> int:
        with isolation.Worker(environment=environment) as worker:
            return worker.call(shapes.growth, 300.0, folder=str(tmp_path / folder), bounded=bounded)

    free = grown("free", dict.fromkeys(ENGINE_ENVIRONMENT, str(shapes.UNBOUNDED)), bounded=False)
    assert grown("bounded", ENGINE_ENVIRONMENT, bounded=True) < free / 4, f"{free} bytes without a bound"


def test_a_worker_keeps_the_kernels_of_its_engine_within_bounds(artifact: Artifact, tmp_path: Path) -> None:
    worker = EncodeWorker(str(artifact.directory), lanes=1, threads=1, how=EncodeOptions(rows="padded"))
    worker.opened()
    assert os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] == str(KEPT_KERNELS)
    opened = bulk_options(tiny(tmp_path, backend="openvino"), 2).engine_options
    assert opened == {"CPU_RUNTIME_CACHE_CAPACITY": KEPT_KERNELS, "ENABLE_CPU_PINNING": False}
    assert bulk_options(artifact, 2) == artifact


def test_an_engine_that_does_not_open_is_told_to_whoever_waits(tmp_path: Path) -> None:
    broken = tiny(tmp_path)
    changed = broken.model_dump(mode="json", by_alias=True) | {"backend": "tensorrt"}
    (broken.directory / "manifest.json").write_text(json.dumps(changed), encoding="utf-8")
    worker = EncodeWorker(str(broken.directory), lanes=2, threads=1, how=EncodeOptions())
    with pytest.raises(UsageError, match="tensorrt opens tensorrt, not onnx"):
        worker.encoded(["the cat"])
