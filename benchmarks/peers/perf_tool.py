"""NVIDIA's perf_analyzer, which asks a Triton over gRPC or HTTP from C++.

Version 2.51 is inside the manylinux1 wheel of `tritonclient==2.51.0` (`make .envs/perf-analyzer/.installed`). The two
libraries that it lacks are among those of nvidia-pytriton, under names with a hash.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from table import ENVIRONMENTS

from trimaran.core.errors import ToolError, UnavailableError

PROGRAM = ENVIRONMENTS / "perf-analyzer" / "bin" / "perf_analyzer"
_LIBRARIES = {"libb64.so.0d": "libb64-*.so.0d", "libcudart.so.12": "libcudart-*.so.12*"}
# It stops when as many windows in a row differ by less than the stability percentage: always, at this one.
_WINDOWS, _ANY_STABILITY = 3, 999
# It fails where no request begins and ends within a window.
_SHORTEST_MS = 1000


def command(model: str, way: str, url: str, data: Path, *, callers: int, time_s: float, export: Path) -> list[str]:
    """As it is typed. `time_s` is for all windows together, `data` holds the texts and `export` gets every request."""
    window_ms = max(_SHORTEST_MS, round(time_s * 1000 / _WINDOWS))
    return [
        *(str(PROGRAM), "-m", model, "-i", way, "-u", url, "--input-data", str(data)),
        *("--concurrency-range", f"{callers}:{callers}", "--measurement-interval", str(window_ms)),
        *("--stability-percentage", str(_ANY_STABILITY), "--max-trials", str(_WINDOWS)),
        *("--percentile", "99", "--profile-export-file", str(export)),
    ]


def closed_loop(
    model: str, way: str, url: str, texts: Sequence[str], folder: Path, *, callers: int, time_s: float, limit_s: float
) -> dict[str, Any]:
    """JSON of a `ClosedPoint`. Raises UnavailableError where it is not installed, ToolError where it fails."""
    if not PROGRAM.is_file():
        raise UnavailableError("perf_analyzer is not installed.", hint="make .envs/perf-analyzer/.installed")
    data, export = folder / "perf-texts.json", folder / "perf-export.json"
    data.write_text(json.dumps({"data": [{"TEXT": [text]} for text in texts]}), encoding="utf-8")
    export.unlink(missing_ok=True)
    asked = command(model, way, url, data, callers=callers, time_s=time_s, export=export)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(_linked_libraries(folder))}
    done = subprocess.run(
        asked, env=environment, cwd=folder, capture_output=True, text=True, timeout=limit_s, check=False
    )
    if done.returncode or not export.is_file():
        raise ToolError(f"perf_analyzer ended with {done.returncode}: {(done.stdout + done.stderr)[-200:]}")
    return point_of(json.loads(export.read_text(encoding="utf-8")), callers)


def point_of(export: dict[str, Any], callers: int) -> dict[str, Any]:
    """The requests that were answered within its windows."""
    [experiment] = export["experiments"]
    begin, end = min(experiment["window_boundaries"]), max(experiment["window_boundaries"])
    answered = [
        (request["timestamp"], request["response_timestamps"][-1])
        for request in experiment["requests"]
        if request["response_timestamps"] and begin <= request["response_timestamps"][-1] <= end
    ]
    failures = sum(not request["response_timestamps"] for request in experiment["requests"])
    latencies = [answered_ns - asked_ns for asked_ns, answered_ns in answered]
    return {"concurrency": callers, "elapsed_ns": end - begin, "latencies_ns": latencies, "failures": failures}


def _linked_libraries(folder: Path) -> Path:
    """A folder with the libraries under the names that the program looks for."""
    spec = find_spec("pytriton")
    if spec is None or spec.origin is None:
        raise UnavailableError("perf_analyzer lacks two libraries.", hint="pip install nvidia-pytriton")
    libraries = Path(spec.origin).parents[1] / "nvidia_pytriton.libs"
    linked = folder / "perf-libraries"
    linked.mkdir(exist_ok=True)
    for name, pattern in _LIBRARIES.items():
        [library] = libraries.glob(pattern)
        (linked / name).unlink(missing_ok=True)
        (linked / name).symlink_to(library)
    return linked
