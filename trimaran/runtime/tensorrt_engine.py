"""A TensorRT plan on a GPU: pinned memory, device buffers, one execution context and CUDA graph a shape bucket."""

from __future__ import annotations

import ctypes
import importlib
import itertools
import json
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .cuda_driver import CudaError, Driver, machine_facts, numbers

Array = npt.NDArray[Any]
Shapes = dict[str, tuple[int, ...]]
_FROM_AMPERE = 8
# Contexts that stay open without buckets: each has buffers of its own.
_MOST_EXACT_SHAPES = 8
# The folder of a version with the plans of other machines, each in a folder by its identity.
PLAN_FOLDERS = "plans"


class ForeignEngine(RuntimeError):
    """The engine was built for another machine than this one."""


class Engine:
    """Synchronous and on host arrays. Inputs are padded to a bucket of the profile, outputs cut back."""

    def __init__(
        self,
        path: str,
        *,
        threads: int,
        options: Mapping[str, Any] | None = None,
        trt: Any = None,
        driver: Driver | None = None,
    ) -> None:
        facts = dict(options or {})
        # The driver first: TensorRT without one hands out null pointers and then crashes.
        self._driver = driver or Driver(int(facts.get("device", 0)))
        self._trt = trt or importlib.import_module(facts.get("runtime", "tensorrt"))
        here = machine_facts(self._trt.__version__, self._driver)
        if "identity" in facts and (unlike := differences(facts["identity"], here)):
            raise ForeignEngine(
                f"{path} was built for another machine: {'; '.join(unlike)}. Run `trimaran finish` or build it here."
            )
        self._runtime = self._trt.Runtime(self._trt.Logger(self._trt.Logger.WARNING))
        self._engine = self._runtime.deserialize_cuda_engine(Path(path).read_bytes())
        if self._engine is None:
            raise RuntimeError(f"{self._trt.__name__} {self._trt.__version__} cannot read {path}.")
        if self._engine.streamable_weights_size > 0:
            self._engine.weight_streaming_budget_v2 = self._engine.get_weight_streaming_automatic_budget()
        self._padding: Mapping[str, int] = facts.get("padding", {})
        self._pad_left = facts.get("pad_side") == "left"
        self._axes: Mapping[str, Sequence[int]] = facts.get("sequence_axes", {})
        # As Triton's own backend runs a plan: at the very shape of each call, and without CUDA graphs.
        self._exact = bool(facts.get("exact_shapes", False))
        self._graphs = bool(facts.get("cuda_graphs", True)) and not self._exact
        # Set when a capture failed: why calls run without CUDA graphs.
        self.capture_failure = ""
        names = [self._engine.get_tensor_name(index) for index in range(self._engine.num_io_tensors)]
        mode = self._trt.TensorIOMode.INPUT
        self._inputs = [name for name in names if self._engine.get_tensor_mode(name) == mode]
        self._outputs = [name for name in names if name not in self._inputs]
        self._stream = self._driver.stream()
        # Buckets run one after another, so all of them share one scratch memory.
        self._scratch_bytes = int(self._engine.device_memory_size_v2)
        self._scratch = self._driver.allocate(self._scratch_bytes)
        self._buckets: dict[tuple[int, int], Bucket] = {}

    def infer(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        bucket, batch, sequence = self._filled(inputs)
        bucket.run()
        return {
            name: cut(bucket.host[name], batch, sequence, self._axes.get(name, ()), left=self._pad_left)
            for name in self._outputs
        }

    def gpu_times_ms(self, inputs: Mapping[str, Array]) -> dict[str, float]:
        """GPU time of one call by events, kernel by kernel: copies to the GPU, kernels, copies back.

        Events cannot split a captured graph, so it runs without one.
        """
        return self._filled(inputs)[0].timed_ms()

    def _filled(self, inputs: Mapping[str, Array]) -> tuple[Bucket, int, int]:
        """The bucket of a call with its padded inputs, and the call's own batch and sequence."""
        self._driver.make_current()
        batch, sequence = next(iter(inputs.values())).shape[:2]
        profile, lows, highs = self._profile_for(batch, sequence)
        key = bucket_of(batch, lows[0], highs[0]), bucket_of(sequence, lows[1], highs[1])
        if self._exact:
            key = batch, sequence
        bucket = self._bucket_for(profile, key)
        for name in self._inputs:
            bucket.host[name][...] = padded(inputs[name], key, self._padding.get(name, 0), left=self._pad_left)
        return bucket, batch, sequence

    def close(self) -> None:
        for bucket in self._buckets.values():
            bucket.close()
        self._buckets.clear()
        if self._engine is not None:
            self._driver.free(self._scratch)
            self._driver.end_stream(self._stream)
        # Contexts before their engine, the engine before its runtime: TensorRT asks for this order.
        self._engine = None
        self._runtime = None

    def _bucket_for(self, profile: int, key: tuple[int, int]) -> Bucket:
        if key not in self._buckets:
            if self._exact and len(self._buckets) >= _MOST_EXACT_SHAPES:
                oldest = next(iter(self._buckets))
                self._buckets[oldest].close()
                del self._buckets[oldest]
            self._buckets[key] = self._bucket(profile, key)
        return self._buckets[key]

    def _without_graphs(self, reason: str) -> None:
        """One failed capture turns graphs off for the whole session: the others would fail alike."""
        self._graphs, self.capture_failure = False, reason
        warnings.warn(f"CUDA graphs are off, calls run one kernel after another: {reason}", stacklevel=2)

    def _profile_for(self, batch: int, sequence: int) -> tuple[int, tuple[int, int], tuple[int, int]]:
        ranges = []
        for index in range(self._engine.num_optimization_profiles):
            low, _, high = (tuple(shape) for shape in self._engine.get_tensor_profile_shape(self._inputs[0], index))
            if low[0] <= batch <= high[0] and low[1] <= sequence <= high[1]:
                return index, low, high
            ranges.append(f"{low[0]}x{low[1]} to {high[0]}x{high[1]}")
        raise ValueError(f"The engine takes {' and '.join(ranges)} (batch x sequence), found {batch}x{sequence}.")

    def _bucket(self, profile: int, key: tuple[int, int]) -> Bucket:
        context = self._engine.create_execution_context(self._trt.ExecutionContextAllocationStrategy.USER_MANAGED)
        if context is None:
            raise RuntimeError("TensorRT made no execution context; the GPU may be out of memory.")
        context.set_device_memory(self._scratch, self._scratch_bytes)
        context.set_optimization_profile_async(profile, self._stream)
        for name in self._inputs:
            if not context.set_input_shape(name, key):
                raise ValueError(f"The engine refuses {name} of shape {key}.")
        if missing := context.infer_shapes():
            raise RuntimeError(f"TensorRT cannot infer the shapes of {', '.join(missing)}.")
        return Bucket(
            self._driver,
            context,
            self._stream,
            inputs={name: self._empty(context, name) for name in self._inputs},
            outputs={name: self._empty(context, name) for name in self._outputs},
            capture_failed=self._without_graphs if self._graphs else None,
        )

    def _empty(self, context: Any, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        dtype = np.dtype(self._trt.nptype(self._engine.get_tensor_dtype(name)))
        return tuple(context.get_tensor_shape(name)), dtype


class Bucket:
    """One shape: its buffers on both sides, and after the first run the CUDA graph of copies and kernels."""

    def __init__(
        self,
        driver: Driver,
        context: Any,
        stream: int,
        *,
        inputs: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]],
        outputs: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]],
        # Called with the reason when the capture of a CUDA graph fails; None runs without graphs.
        capture_failed: Callable[[str], None] | None,
    ) -> None:
        self._driver, self._context, self._stream, self._capture_failed = driver, context, stream, capture_failed
        self._inputs, self._outputs = list(inputs), list(outputs)
        self._device: dict[str, int] = {}
        self._pinned: dict[str, int] = {}
        self.host: dict[str, Array] = {}
        self._graph = 0
        for name, (shape, dtype) in {**inputs, **outputs}.items():
            size = int(np.prod(shape)) * dtype.itemsize
            self._device[name] = driver.allocate(size)
            self._pinned[name] = driver.allocate_pinned(size)
            memory = (ctypes.c_uint8 * max(1, size)).from_address(self._pinned[name])
            self.host[name] = np.frombuffer(memoryview(memory), dtype, count=int(np.prod(shape))).reshape(shape)
            context.set_tensor_address(name, self._device[name])

    def run(self) -> None:
        if self._graph:
            self._driver.launch(self._graph, self._stream)
        else:
            self._enqueue()
        self._driver.synchronize(self._stream)
        if self._capture_failed and not self._graph:
            self._capture(self._capture_failed)

    def _capture(self, failed: Callable[[str], None]) -> None:
        """The first run has made what TensorRT makes once a shape; only then may it be captured.

        Its answers are whole already, so a capture that fails costs speed and no request.
        """
        captured: dict[str, int] = {}
        try:
            with self._driver.capturing(self._stream, captured):
                self._enqueue()
            self._graph = captured["graph"]
        except RuntimeError as error:
            self._capture_failed = None
            failed(str(error))

    def timed_ms(self) -> dict[str, float]:
        parts: dict[str, Callable[[], None]] = {"copy_in": self._copy_in, "kernels": self._execute}
        parts["copy_out"] = self._copy_out
        events = [self._driver.event() for _ in range(len(parts) + 1)]
        self._driver.record(events[0], self._stream)
        for part, event in zip(parts.values(), events[1:], strict=True):
            part()
            self._driver.record(event, self._stream)
        self._driver.synchronize(self._stream)
        times = [self._driver.elapsed_ms(begun, ended) for begun, ended in itertools.pairwise(events)]
        for event in events:
            self._driver.end_event(event)
        return dict(zip(parts, times, strict=True))

    def _enqueue(self) -> None:
        self._copy_in()
        self._execute()
        self._copy_out()

    def _copy_in(self) -> None:
        for name in self._inputs:
            array = self.host[name]
            self._driver.to_device(self._device[name], self._pinned[name], array.nbytes, self._stream)

    def _execute(self) -> None:
        if not self._context.execute_async_v3(self._stream):
            raise RuntimeError("TensorRT could not put the engine on the stream; its log says why.")

    def _copy_out(self) -> None:
        for name in self._outputs:
            array = self.host[name]
            self._driver.to_host(self._pinned[name], self._device[name], array.nbytes, self._stream)

    def close(self) -> None:
        self._context = None
        if self._graph:
            self._driver.end_graph(self._graph)
        self.host.clear()
        for name in self._device:
            self._driver.free(self._device[name])
            self._driver.free_pinned(self._pinned[name])


def bucket_of(size: int, low: int, high: int) -> int:
    """The next power of two, inside the profile: few graphs, and at most twice the work."""
    return max(low, min(high, 1 << (size - 1).bit_length()))


def padded(array: Array, shape: tuple[int, int], value: int, *, left: bool) -> Array:
    """Rows filled with the pad value; added rows repeat the first, whose mask is a real one."""
    rows, width = shape[0] - array.shape[0], shape[1] - array.shape[1]
    wide = np.pad(array, ((0, 0), (width, 0) if left else (0, width)), constant_values=value)
    return np.concatenate([wide, np.repeat(wide[:1], rows, axis=0)]) if rows else wide


def cut(array: Array, batch: int, sequence: int, axes: Sequence[int], *, left: bool) -> Array:
    """A copy of the rows and tokens that were asked for; the buffer is overwritten by the next run."""
    kept = [slice(None)] * array.ndim
    kept[0] = slice(batch)
    for axis in axes:
        size = array.shape[axis]
        kept[axis] = slice(size - sequence, size) if left else slice(sequence)
    return array[tuple(kept)].copy()


def plan_folder(facts: Mapping[str, Any]) -> str:
    """The name of a machine's plan folder, such as `nvidia-a10-8.6-tensorrt-11.2.1.5`."""
    words = f"{facts['gpu']} {facts['compute_capability']} tensorrt {facts['version']}"
    return re.sub(r"[^a-z0-9.]+", "-", words.lower()).strip("-.")


def settings_here(folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of the plan for this machine, where a version holds plans of unlike GPUs; else those given."""
    others = sorted((folder / PLAN_FOLDERS).glob("*/serving.json"))
    for plan_settings in (
        (settings, *(json.loads(path.read_text(encoding="utf-8")) for path in others)) if others else ()
    ):
        if _opens_here(plan_settings["engine_options"]):
            return dict(plan_settings)
    return settings


def _opens_here(options: Mapping[str, Any]) -> bool:
    version = importlib.import_module(options.get("runtime", "tensorrt")).__version__
    try:
        here = machine_facts(version, Driver(int(options.get("device", 0))))
    except CudaError:
        return False
    return not differences(options["identity"], here)


def _speaks(here: str | None, wanted: str | None) -> bool:
    """Whether a driver speaks the builder's CUDA. NVIDIA's images bring a newer driver library for older drivers."""
    return bool(here and wanted) and numbers(str(here))[0] >= numbers(str(wanted))[0]


def differences(built: Mapping[str, Any], here: Mapping[str, Any]) -> tuple[str, ...]:
    """Why an engine of the identity `built` must not be opened `here`; empty where it may."""
    reasons = []
    wanted, version = str(built["version"]), str(here["version"])
    # A wheel may be numbered 10.14.1.48.post1 where its library says 10.14.1.48.
    if numbers(version) != numbers(wanted):
        reasons.append(f"built with TensorRT {wanted}, here is {version}")
    for_these = list(built.get("compute_capabilities") or ())
    level, capability = built.get("hardware_compatible", "NONE"), here.get("compute_capability")
    fits = capability in for_these or (level == "AMPERE_PLUS" and numbers(str(capability or 0))[0] >= _FROM_AMPERE)
    if for_these and not fits:
        reasons.append(f"built for compute capability {', '.join(for_these)}, here is {capability or 'no GPU'}")
    if built.get("gpu") and level == "NONE" and here.get("gpu") != built["gpu"]:
        reasons.append(f"built on {built['gpu']}, here is {here.get('gpu') or 'no GPU'}")
    oldest, driver = built.get("oldest_driver"), here.get("driver")
    if oldest and driver and numbers(driver) < numbers(oldest) and not _speaks(here.get("cuda"), built.get("cuda")):
        reasons.append(f"needs the driver {oldest} or newer, here is {driver}")
    return tuple(reasons)
