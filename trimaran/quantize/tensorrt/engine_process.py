"""The TensorRT builder itself, run in a child process: ONNX in, the plan and what the builder logged out, as JSON."""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from trimaran.core.choices import HardwareCompatible
from trimaran.core.environment import driver_present
from trimaran.core.errors import ToolError, UsageError
from trimaran.core.spec import Frozen
from trimaran.runtime.cuda_driver import Driver

# How a message of the builder begins that lists the fused layers of one GPU.
LAYERS_PREFIX = "Layers:"
_NO_BUILDER = "Is a GPU visible (nvidia-smi), and is its driver new enough for this TensorRT? `trimaran doctor` says."
_MOST_ERRORS = 6
MOST_WARNINGS = 20
# How TensorRT warns of a kernel that needs more memory than there is.
_MEMORY_REQUEST = re.compile(r"Tactic Device request: (\d+)MB Available: (\d+)MB")


class EngineOptions(Frozen):
    """What the builder can be told. The types of a network are not among it: they are those of the graph."""

    # For tensorrt_rtx: the GPUs to build for, such as ("8.6", "12.0"). Plain TensorRT builds for the GPU that it finds.
    compute_capabilities: tuple[str, ...] = ()
    # The builder's scratch memory.
    workspace_bytes: int | None = None
    # Keep weights in host memory and copy them to the GPU when they are needed.
    weight_streaming: bool = False
    # The plan also runs on other GPUs than the one that it was built on.
    hardware_compatible: HardwareCompatible = "NONE"
    # How long the builder looks for fast kernels, from 0 to 5.
    optimization_level: int | None = None


def build_plan(
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
    """Write the plan. Each of the `profiles` holds the minimum, typical and maximum shape of every input.

    `options` are those of `EngineOptions`. A timing cache that TensorRT refuses is an error, or with `replace_cache` is
    begun anew. Raises ToolError with the parser's or the builder's own words.
    """
    # TensorRT builds for the GPU whose context is current. It stays so until this process ends: TensorRT frees its
    # memory on that GPU later than here.
    if runtime == "tensorrt":
        Driver(device)
    trt = importlib.import_module(runtime)
    begun_s = time.monotonic()
    logger = _logger(trt)
    builder = _made("builder", lambda: trt.Builder(logger), runtime, logger)
    # The types are those of the graph. The flag has another value in each version: TensorRT 10 is weakly typed without.
    typed = 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
    network = _made("network", lambda: builder.create_network(typed), runtime, logger)
    parser = _made("parser", lambda: trt.OnnxParser(network, logger), runtime, logger)
    if not parser.parse_from_file(graph):
        errors = [parser.get_error(index) for index in range(parser.num_errors)]
        words = [f"{error.node_operator()} {error.node_name()}: {_reason(error)}" for error in errors]
        raise refused_build(f"{runtime} cannot read the graph", words or logger.errors, runtime)
    config = _made("builder config", builder.create_builder_config, runtime, logger)
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    _set_options(trt, config, EngineOptions.model_validate(options))
    cache = _set_timing_cache(config, timing_cache, replace=replace_cache)
    if progress:
        config.progress_monitor = _monitor(trt, Path(progress))
    for shapes in profiles:
        _add_profile(builder, config, network, shapes)
    built = builder.build_serialized_network(network, config)
    if built is None:
        raise refused_build(f"{runtime} built no engine", logger.errors, runtime, warnings=logger.warnings)
    Path(plan).write_bytes(memoryview(built))
    if cache is not None and timing_cache:
        _save(Path(timing_cache), memoryview(cache.serialize()))
    return {
        "version": str(trt.__version__),
        "layers": logger.layers or _inspected(trt, logger, built),
        "warnings": list(dict.fromkeys(logger.warnings))[:MOST_WARNINGS],
        "plan_bytes": Path(plan).stat().st_size,
        "build_s": round(time.monotonic() - begun_s, 2),
    }


def _inspected(trt: Any, logger: Any, built: Any) -> list[str]:
    """Return the same table from the finished engine, if there is a GPU to open it on; the log had none."""
    engine = trt.Runtime(logger).deserialize_cuda_engine(built) if driver_present() else None
    if engine is None:
        return []
    return [str(engine.create_engine_inspector().get_engine_information(trt.LayerInformationFormat.ONELINE))]


def _set_options(trt: Any, config: Any, options: EngineOptions) -> None:
    # On by default, and fp32 products would then keep ten bits of their inputs.
    config.clear_flag(trt.BuilderFlag.TF32)
    _set_target(trt, config, options.compute_capabilities)
    if options.workspace_bytes:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, options.workspace_bytes)
    if options.weight_streaming:
        config.set_flag(trt.BuilderFlag.WEIGHT_STREAMING)
    if options.hardware_compatible != "NONE":
        config.hardware_compatibility_level = getattr(trt.HardwareCompatibilityLevel, options.hardware_compatible)
    if options.optimization_level is not None:
        config.builder_optimization_level = options.optimization_level


def _set_target(trt: Any, config: Any, compute_capabilities: tuple[str, ...]) -> None:
    """Set which GPUs the plan is for. Plain TensorRT has no such setting, and is not asked for it."""
    if compute_capabilities:
        config.num_compute_capabilities = len(compute_capabilities)
    for index, capability in enumerate(compute_capabilities):
        name = f"SM{capability.replace('.', '')}"
        if not hasattr(trt.ComputeCapability, name):
            known = [name[2:] for name in dir(trt.ComputeCapability) if name.startswith("SM")]
            raise UsageError(
                f"{trt.__name__} {trt.__version__} cannot build for compute capability {capability}.",
                hint=f"It knows {', '.join(f'{digits[:-1]}.{digits[-1]}' for digits in known)}.",
            )
        config.set_compute_capability(getattr(trt.ComputeCapability, name), index)


def _add_profile(builder: Any, config: Any, network: Any, shapes: dict[str, list[list[int]]]) -> None:
    profile = builder.create_optimization_profile()
    for index in range(network.num_inputs):
        name = network.get_input(index).name
        if name not in shapes:
            raise ToolError(f"The graph's input {name} is not in the artifact's signature.")
        profile.set_shape(name, *(tuple(shape) for shape in shapes[name]))
    config.add_optimization_profile(profile)


def _set_timing_cache(config: Any, path: str | None, *, replace: bool) -> Any:
    """Read what was timed before, so that it is not timed again. TensorRT refuses a cache of another version or GPU."""
    if path is None:
        return None
    stored = Path(path).read_bytes() if Path(path).is_file() else b""
    for content in (stored, b"") if replace else (stored,):
        cache = config.create_timing_cache(content)
        if cache is not None and config.set_timing_cache(cache, False):
            return cache
    raise UsageError(f"The timing cache {path} is of another TensorRT or GPU.", hint="Name another file.")


def _save(path: Path, data: memoryview) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(data)
    temporary.replace(path)


def _made(what: str, make: Callable[[], Any], runtime: str, logger: Any) -> Any:
    """Return what TensorRT made. Where it cannot, it gives a null pointer, which its bindings raise as TypeError."""
    try:
        made = make()
    except TypeError as error:
        raise refused_build(f"{runtime} made no {what} ({error})", logger.errors, runtime, hint=_NO_BUILDER) from error
    if made is None:
        raise refused_build(f"{runtime} made no {what}", logger.errors, runtime, hint=_NO_BUILDER)
    return made


def refused_build(
    what: str, words: list[str], runtime: str, *, warnings: Sequence[str] = (), hint: str = ""
) -> ToolError:
    """The cause of an out-of-memory is in the warnings: which memory a kernel asked for, and what there was."""
    requests = [word for word in warnings if _MEMORY_REQUEST.search(word)]
    sentences = [*words[:_MOST_ERRORS], *requests[-1:]]
    reasons = " | ".join(dict.fromkeys(" ".join(word.split()) for word in sentences)) or "nothing"
    if requests:
        available = min(int(match[2]) for word in requests if (match := _MEMORY_REQUEST.search(word)))
        hint = f"The GPU is short of memory: end what else uses it, or build with --workspace {max(1, available // 2)}."
    return ToolError(f"{what}. It says: {reasons}", hint=hint, runtime=runtime, said=reasons)


def _reason(error: Any) -> str:
    """Return the parser's sentence. For an operator that it does not have, it says only `false`."""
    return "not supported" if error.desc().strip() == "false" else str(error.desc())


def _logger(trt: Any) -> Any:
    """Return a logger that writes everything to the log file (stderr here) and keeps errors and fused-layer tables."""

    class Log(trt.ILogger):
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.errors: list[str] = []
            self.warnings: list[str] = []
            self.layers: list[str] = []

        def log(self, severity: Any, message: str) -> None:
            if severity in (trt.ILogger.ERROR, trt.ILogger.INTERNAL_ERROR):
                self.errors.append(message)
            elif severity == trt.ILogger.WARNING:
                self.warnings.append(message)
            elif message.startswith(LAYERS_PREFIX):
                self.layers.append(message)
            sys.stderr.write(f"[{severity.name}] {message}\n")

    return Log()


def _monitor(trt: Any, path: Path) -> Any:
    """Return a monitor that writes where the build is, as JSON lines, into a file that the parent process reads."""

    class Monitor(trt.IProgressMonitor):
        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)
            self._steps: dict[str, int] = {}

        def phase_start(self, phase: str, parent: str | None, steps: int) -> None:
            self._steps[phase] = steps
            self._tell(phase, 0)

        def step_complete(self, phase: str, step: int) -> bool:
            self._tell(phase, step + 1)
            return True

        def phase_finish(self, phase: str) -> None:
            self._tell(phase, self._steps.pop(phase, 0))

        def _tell(self, phase: str, done: int) -> None:
            with path.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps([phase, done, self._steps.get(phase, done)]) + "\n")

    return Monitor()
