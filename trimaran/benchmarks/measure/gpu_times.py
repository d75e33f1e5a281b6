"""GPU time of a plan by the GPU's own events, with the copies apart. It runs in a child process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from trimaran.core.artifact import Artifact, load_artifact
from trimaran.core.backends import backend
from trimaran.core.isolation import run
from trimaran.core.samples import Shape

CALLS, WARMUP_CALLS = 20, 3
_DEADLINE_S = 300.0
GpuTimes = dict[str, dict[str, float]]


def gpu_times(artifact: Artifact, shapes: Sequence[Shape], *, threads: int) -> GpuTimes:
    """By shape: the median milliseconds of each part of a call. `artifact` is a TensorRT plan."""
    pairs = [[shape.batch, shape.sequence] for shape in shapes]
    times: GpuTimes = run(time_shapes, _DEADLINE_S, directory=str(artifact.directory), shapes=pairs, threads=threads)
    return times


def time_shapes(directory: str, shapes: list[list[int]], threads: int) -> GpuTimes:
    artifact = load_artifact(Path(directory), verify=False)
    opened = backend(artifact.backend).engine
    engine: Any = opened(str(artifact.entry_path), threads=threads, options=artifact.engine_options)
    asked = [Shape(batch=batch, sequence=sequence) for batch, sequence in shapes]
    try:
        return {str(shape): _times(engine, artifact, shape) for shape in asked}
    finally:
        engine.close()


def _times(engine: Any, artifact: Artifact, shape: Shape) -> dict[str, float]:
    # What the numbers are makes no difference to a GPU: no kernel of an encoder skips work for them.
    inputs = {name: np.ones((shape.batch, shape.sequence), np.int64) for name in artifact.signature.input_names}
    calls = [engine.gpu_times_ms(inputs) for _ in range(WARMUP_CALLS + CALLS)][WARMUP_CALLS:]
    return {part: median([call[part] for call in calls]) for part in calls[0]}
