"""The session's own work (buckets, padding, copies, graphs) on a GPU made of host memory; on a real one below."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.quantize.tensorrt.engines import CALIBRATION, QUIET, World
from tests.quantize.tensorrt.fake_gpu import FACTS, VERSION, FakeDriver, FakeEngine, FakeTensorrt
from trimaran.core.backends import backend, driver_present, open_session
from trimaran.core.corpus import encoder_of
from trimaran.core.distances import cosine_distances
from trimaran.quantize.tensorrt.engine import build_engine
from trimaran.runtime.cuda_driver import CudaError, Driver, gpu_names
from trimaran.runtime.tensorrt_engine import Engine, ForeignEngine, bucket_of

RANGES = [((1, 1), (2, 8), (4, 16))]
OPTIONS: dict[str, Any] = {
    "padding": {"input_ids": 7, "attention_mask": 0},
    "sequence_axes": {"doubles": [1]},
}
IDENTITY = {
    "version": VERSION,
    "compute_capabilities": [FACTS["compute_capability"]],
    "gpu": FACTS["gpu"],
    "cuda": FACTS["cuda"],
}


def session(tmp_path: Path, *, ranges: Any = RANGES, **options: Any) -> tuple[Engine, FakeDriver, FakeTensorrt]:
    plan = tmp_path / "model.plan"
    plan.write_bytes(b"plan")
    driver = FakeDriver()
    module = FakeTensorrt(FakeEngine(driver, ranges))
    engine = Engine(str(plan), threads=1, options={**OPTIONS, **options}, trt=module, driver=driver)  # type: ignore[arg-type]
    return engine, driver, module


def batch(rows: int, width: int) -> dict[str, Any]:
    ids = np.arange(1, rows * width + 1, dtype=np.int64).reshape(rows, width)
    mask = np.ones_like(ids)
    mask[-1, width // 2 + 1 :] = 0
    return {"input_ids": ids, "attention_mask": mask}


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (3, 9), (4, 16)])
@pytest.mark.parametrize("graphs", [True, False])
@pytest.mark.parametrize("side", ["right", "left"])
def test_answers_do_not_depend_on_the_bucket(tmp_path: Path, shape: tuple[int, int], graphs: bool, side: str) -> None:
    engine, _, _ = session(tmp_path, cuda_graphs=graphs, pad_side=side)
    inputs = batch(*shape)
    for _ in range(3):
        found = engine.infer(inputs)
        assert (found["sums"] == (inputs["input_ids"] * inputs["attention_mask"]).sum(axis=1)).all()
        assert (found["doubles"] == inputs["input_ids"] * 2).all()
    engine.close()


def test_one_context_and_one_graph_a_bucket(tmp_path: Path) -> None:
    engine, driver, module = session(tmp_path)
    for width in (5, 6, 8, 7):
        engine.infer(batch(2, width))
    assert module.engine is not None and len(module.engine.contexts) == 1
    assert module.engine.contexts[0].shape == (2, 8)
    assert (driver.enqueued, driver.launches) == (2, 3), "run once, captured once, launched ever after"
    engine.infer(batch(2, 9))
    assert len(module.engine.contexts) == 2


def test_a_capture_that_fails_costs_no_request_and_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, driver, _ = session(tmp_path)

    @contextlib.contextmanager
    def refused(stream: int, captured: dict[str, int]) -> Iterator[None]:
        yield
        raise CudaError("cuStreamEndCapture: CUDA_ERROR_STREAM_CAPTURE_INVALIDATED (901)")

    monkeypatch.setattr(driver, "capturing", refused)
    inputs = batch(2, 8)
    with pytest.warns(UserWarning, match="CUDA graphs are off") as said:
        for _ in range(3):
            assert (engine.infer(inputs)["doubles"] == inputs["input_ids"] * 2).all()
        engine.infer(batch(2, 16))
    assert driver.launches == 0 and "CAPTURE_INVALIDATED" in engine.capture_failure
    assert len(said) == 1, "other shapes are not tried again"


def test_with_exact_shapes_nothing_is_padded_captured_or_kept_without_end(tmp_path: Path) -> None:
    """As Triton's own backend runs the plan: what is timed is what is served."""
    engine, driver, module = session(tmp_path, exact_shapes=True)
    for width in range(1, 13):
        inputs = batch(3, width)
        assert (engine.infer(inputs)["doubles"] == inputs["input_ids"] * 2).all()
    assert module.engine is not None and module.engine.contexts[4].shape == (3, 5)
    assert driver.launches == 0 and len(engine._buckets) == 8
    engine.close()
    assert driver.live == {}


def test_earlier_answers_are_not_overwritten(tmp_path: Path) -> None:
    engine, _, _ = session(tmp_path)
    first = engine.infer(batch(2, 8))["doubles"]
    kept = first.copy()
    engine.infer({"input_ids": np.zeros((2, 8), np.int64), "attention_mask": np.ones((2, 8), np.int64)})
    assert (first == kept).all()


def test_the_profile_that_covers_the_shape_is_taken(tmp_path: Path) -> None:
    engine, _, module = session(tmp_path, ranges=[((1, 1), (1, 4), (4, 4)), ((1, 5), (1, 8), (4, 16))])
    engine.infer(batch(1, 3))
    engine.infer(batch(1, 6))
    assert module.engine is not None
    assert [(context.profile, context.shape) for context in module.engine.contexts] == [(0, (1, 4)), (1, (1, 8))]


def test_a_shape_outside_every_profile_says_what_is_taken(tmp_path: Path) -> None:
    engine, _, _ = session(tmp_path)
    with pytest.raises(ValueError, match=r"takes 1x1 to 4x16 \(batch x sequence\), found 2x17"):
        engine.infer(batch(2, 17))


def test_buckets_are_powers_of_two_inside_the_profile() -> None:
    assert [bucket_of(size, 3, 48) for size in (1, 3, 5, 32, 33, 48)] == [3, 4, 8, 32, 48, 48]


def test_closing_frees_everything_and_may_be_repeated(tmp_path: Path) -> None:
    engine, driver, _ = session(tmp_path)
    engine.infer(batch(1, 3))
    engine.infer(batch(2, 9))
    engine.close()
    engine.close()
    assert driver.live == {}


def test_a_foreign_engine_is_refused_before_the_runtime_sees_it(tmp_path: Path) -> None:
    session(tmp_path, identity=IDENTITY)
    driver = FakeDriver()
    module = FakeTensorrt(FakeEngine(driver, RANGES))
    with pytest.raises(ForeignEngine, match=r"built for compute capability 9\.0, here is 8\.6"):
        options = {"identity": {**IDENTITY, "compute_capabilities": ["9.0"]}}
        Engine("absent.plan", threads=1, options=options, trt=module, driver=driver)  # type: ignore[arg-type]
    assert module.opened == 0


def test_a_plan_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.plan").write_bytes(b"")
    with pytest.raises(RuntimeError, match=r"tensorrt 11\.4\.0\.106 cannot read .*bad\.plan"):
        Engine(str(tmp_path / "bad.plan"), threads=1, trt=FakeTensorrt(None), driver=FakeDriver())  # type: ignore[arg-type]


def test_an_error_of_the_driver_has_its_own_name() -> None:
    class Library:
        def cuInit(self, flags: int) -> int:
            return 100

        def cuGetErrorName(self, code: int, name: Any) -> int:
            name._obj.value = b"CUDA_ERROR_NO_DEVICE"
            return 0

    with pytest.raises(CudaError, match=r"cuInit: CUDA_ERROR_NO_DEVICE \(100\)"):
        Driver(library=Library())


def needs(runtime: str) -> None:
    if not driver_present():
        pytest.skip("no NVIDIA driver (libcuda.so.1) on this machine")
    if importlib.util.find_spec(backend(runtime).module) is None:
        pytest.skip(f"{runtime} is not installed")
    if runtime == "tensorrt_rtx" and "RTX" not in gpu_names()[0]:
        pytest.skip(f"tensorrt_rtx is made for RTX GPUs, and this is {gpu_names()[0]}")


@pytest.mark.gpu
@pytest.mark.parametrize("runtime", ["tensorrt", "tensorrt_rtx"])
@pytest.mark.parametrize("name", ["onnx-fp16", "onnx-int8-qdq"])
def test_engine_answers_like_its_graph_on_a_real_gpu(world: World, runtime: Any, name: str) -> None:
    needs(runtime)
    graph = world.graph("bert", name)
    engine = build_engine(graph, runtime=runtime, store=world.store, progress=QUIET)
    encoder = encoder_of(graph)
    rows = encoder.rows(CALIBRATION[:4])
    with open_session(graph, threads=1) as before, open_session(engine, threads=1) as after:
        for count in (1, 3, 4, 3):
            inputs = encoder.batch(rows[:count])
            wanted, found = before.infer(inputs)["embedding"], after.infer(inputs)["embedding"]
            assert cosine_distances(wanted, found).max() < 1e-3
