"""Builds a plan with the `trtexec` of NVIDIA's image, for machines where Python has no TensorRT."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trimaran.core.errors import ToolError, UsageError
from trimaran.core.gpu_release import trtexec_program, trtexec_version
from trimaran.quantize.tensorrt.engine_process import LAYERS_PREFIX, MOST_WARNINGS, EngineOptions, refused_build
from trimaran.runtime.cuda_driver import numbers

# How a line of its log begins, such as `[11/19/2026-22:11:11] [V] [TRT] `.
_LINE = re.compile(r"^\[[^\]]*\] \[(?P<severity>[IWEFV])\] (?:\[TRT\] )?(?P<message>.*)$")
# From this version on every network is strongly typed.
_ALWAYS_STRONGLY_TYPED = 11


def build_with_trtexec(
    graph: str,
    plan: str,
    *,
    runtime: str,
    profiles: list[dict[str, list[list[int]]]],
    options: dict[str, Any],
    timing_cache: str | None = None,
    replace_cache: bool = False,
    progress: str | None = None,
    device: int = 0,
) -> dict[str, Any]:
    """Takes and gives what `build_plan` does. A timing cache with which the build fails is begun anew."""
    program, version = trtexec_program(), trtexec_version()
    if program is None or version is None:
        raise ToolError(f"There is neither a Python module of {runtime} nor trtexec.")
    command = [program, *_flags(graph, plan, version, profiles, EngineOptions.model_validate(options), device)]
    begun_s = time.monotonic()
    cache = Path(timing_cache) if timing_cache else None
    if cache:
        cache.parent.mkdir(parents=True, exist_ok=True)
        command.append(f"--timingCacheFile={cache}")
    code, log = _run(command)
    if code and cache and cache.is_file() and replace_cache:
        cache.unlink()
        code, log = _run(command)
    if code or not Path(plan).is_file():
        raise refused_build("trtexec built no engine", log.errors, runtime, warnings=log.warnings)
    return {
        "version": version,
        "layers": log.layers,
        "warnings": list(dict.fromkeys(log.warnings))[:MOST_WARNINGS],
        "plan_bytes": Path(plan).stat().st_size,
        "build_s": round(time.monotonic() - begun_s, 2),
    }


class TrtexecLog:
    """What its log says, by severity, and the table of fused layers."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self.warnings: list[str] = []
        self.layers: list[str] = []
        self._in_table = False

    def read(self, lines: Iterable[str]) -> None:
        for line in lines:
            found = _LINE.match(line.rstrip("\n"))
            if found is None:
                # A message of several lines goes on.
                if self._in_table:
                    self.layers[-1] += f"\n{line.rstrip()}"
                continue
            message = found["message"]
            self._in_table = message.startswith(LAYERS_PREFIX)
            if self._in_table:
                self.layers.append(message)
            elif found["severity"] in "EF":
                self.errors.append(message)
            elif found["severity"] == "W":
                self.warnings.append(message)


def _run(command: Sequence[str]) -> tuple[int, TrtexecLog]:
    """Its words also go to standard error, which is the log file of this process."""
    log = TrtexecLog()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        log.read(_copied(process.stdout))
    return process.returncode, log


def _copied(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        sys.stderr.write(line)
        yield line


def _flags(
    graph: str,
    plan: str,
    version: str,
    profiles: Sequence[Mapping[str, Sequence[Sequence[int]]]],
    options: EngineOptions,
    device: int,
) -> list[str]:
    if len(profiles) != 1 or options.weight_streaming or options.hardware_compatible != "NONE":
        raise UsageError(
            "Through trtexec a plan has one profile, no weight streaming and no hardware compatibility.",
            hint="Install the Python module of this TensorRT: `trimaran doctor` names it.",
        )
    flags = [f"--onnx={graph}", f"--saveEngine={plan}", f"--device={device}", "--skipInference"]
    # TF32 is on by default, and fp32 products would then keep ten bits of their inputs.
    flags += ["--noTF32", "--verbose", "--profilingVerbosity=detailed"]
    if numbers(version)[0] < _ALWAYS_STRONGLY_TYPED:
        flags.append("--stronglyTyped")
    for index, which in enumerate(("min", "opt", "max")):
        shapes = (f"{name}:{'x'.join(map(str, sizes[index]))}" for name, sizes in profiles[0].items())
        flags.append(f"--{which}Shapes={','.join(shapes)}")
    if options.workspace_bytes:
        flags.append(f"--memPoolSize=workspace:{options.workspace_bytes >> 20}")
    if options.optimization_level is not None:
        flags.append(f"--builderOptimizationLevel={options.optimization_level}")
    return flags
