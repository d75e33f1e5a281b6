"""What a GPU does in a call: its own time by events with the copies apart, the memory it holds, and its state.

It runs in a child process, while nothing else of trimaran uses the GPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from trimaran.benchmarks.measure.gpu_state import GpuFacts, gpu_state
from trimaran.core.artifact import Artifact, load_artifact
from trimaran.core.backends import backend
from trimaran.core.isolation import run
from trimaran.core.samples import Shape
from trimaran.runtime.cuda_driver import Driver

CALLS, WARMUP_CALLS = 20, 3
_DEADLINE_S = 300.0


def gpu_facts(
    artifact: Artifact,
    shapes: Sequence[Shape],
    *,
    threads: int,
    device: int,
    options: Mapping[str, Any] | None = None,
) -> GpuFacts:
    """`artifact` is a TensorRT plan or eager PyTorch; `options` are further ones of its engine."""
    pairs = [[shape.batch, shape.sequence] for shape in shapes]
    facts = run(
        time_shapes,
        _DEADLINE_S,
        directory=str(artifact.directory),
        shapes=pairs,
        threads=threads,
        device=device,
        options=dict(options or {}),
    )
    return GpuFacts.model_validate(facts)


def time_shapes(
    directory: str, shapes: list[list[int]], threads: int, device: int, options: dict[str, Any]
) -> dict[str, Any]:
    artifact = load_artifact(Path(directory), verify=False)
    driver = Driver(device)
    free_bytes = driver.free_bytes()
    opened = backend(artifact.backend).engine
    engine: Any = opened(str(artifact.entry_path), threads=threads, options={**artifact.engine_options, **options})
    requested = [Shape(batch=batch, sequence=sequence) for batch, sequence in shapes]
    try:
        times = {str(shape): _times(engine, artifact, shape) for shape in requested}
        capture_failure = getattr(engine, "capture_failure", "")
        state = gpu_state(driver.bus_id())
        driver.make_current()
        held = max(0, free_bytes - driver.free_bytes())
    finally:
        engine.close()
    facts = GpuFacts(times_ms=times, memory_bytes=held, state=state, capture_failure=capture_failure)
    return facts.model_dump(mode="json")


def _times(engine: Any, artifact: Artifact, shape: Shape) -> dict[str, float]:
    # What the numbers are makes no difference to a GPU: no kernel of an encoder skips work for them.
    inputs = {name: np.ones((shape.batch, shape.sequence), np.int64) for name in artifact.signature.input_names}
    # As it is served, so that its CUDA graph is captured, too.
    engine.infer(inputs)
    calls = [engine.gpu_times_ms(inputs) for _ in range(WARMUP_CALLS + CALLS)][WARMUP_CALLS:]
    return {part: median([call[part] for call in calls]) for part in calls[0]}
