"""An OpenVINO IR, or an ONNX file, in OpenVINO on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
# Kernels are kept for each shape that was met, and every shape costs half a megabyte: OpenVINO's own limit of 5,000
# would let a server grow for hours.
KEPT_KERNELS = 1024
# Inputs of a packed graph: where its tokens stand among all places, and where each place finds its token.
TOKENS, PLACES = "packed_tokens", "packed_places"
# Packing costs as much time as these tokens, and a share of what is packed.
_COST_TOKENS, _COST_SHARE = 8, 1 / 32
_STEP = 8


class Engine:
    """A packed graph computes next to nothing for padding. Calls that have hardly any take the same graph unpacked,
    which is quicker for them and answers the same to the last bit; it costs a second copy of the compiled model.

    With `streams`, calls that come together run side by side, a share of the threads each: two calls of one thread
    wait less for each other than one call of two threads. It costs another copy.
    """

    def __init__(self, path: str, *, threads: int, options: Mapping[str, Any] | None = None, streams: int = 1) -> None:
        import openvino as ov

        # Without the precision hint OpenVINO quietly runs an fp32 model in bf16 wherever the CPU advertises it.
        settings = {
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "f32",
            "CPU_RUNTIME_CACHE_CAPACITY": KEPT_KERNELS,
            # Threads that are tied to a CPU each wait there for whatever else runs on it, such as a second stage.
            "ENABLE_CPU_PINNING": False,
            **(options or {}),
        }
        core = ov.Core()
        model = core.read_model(path)
        packs = any(TOKENS in found.get_names() for found in model.inputs)
        compiled = core.compile_model(unpacked(model.clone()) if packs else model, "CPU", settings)
        self._request = compiled.create_infer_request()
        self._outputs = [output.get_any_name() for output in compiled.outputs]
        self._packed: Any = core.compile_model(model, "CPU", settings).create_infer_request() if packs else None
        self._side_by_side: list[Any] = []
        if streams > 1:
            shared = core.compile_model(model, "CPU", {**settings, "NUM_STREAMS": streams})
            self._side_by_side = [shared.create_infer_request() for _ in range(streams)]

    def infer(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        packing = Packing.of(inputs["attention_mask"]) if self._packed else None
        if packing and packing.pays:
            self._packed.infer(packing.inputs(inputs), share_inputs=True)
            return self._read(self._packed)
        self._request.infer(dict(inputs), share_inputs=True)
        return self._read(self._request)

    def infer_many(self, calls: Sequence[Mapping[str, Array]]) -> list[dict[str, Array]]:
        """The outputs of each call, in order; side by side where the engine was opened with streams."""
        if len(calls) < 2 or not self._side_by_side:
            return [self.infer(inputs) for inputs in calls]
        if self._packed:
            calls = [Packing.of(inputs["attention_mask"]).inputs(inputs) for inputs in calls]
        found: list[dict[str, Array]] = []
        waiting = iter(calls)
        # Calls come in order of length, so those side by side take about as long.
        while together := list(zip(self._side_by_side, waiting, strict=False)):
            failures = [
                _failure_of(request.start_async, dict(inputs), share_inputs=True) for request, inputs in together
            ]
            # All are waited for before one that failed is told: none may still run when the next calls come.
            failures += [_failure_of(request.wait) for request, _ in together]
            if failure := next(filter(None, failures), None):
                raise failure
            found += [self._read(request) for request, _ in together]
        return found

    def _read(self, request: Any) -> dict[str, Array]:
        """The tensors belong to the request and are overwritten by the next call, so each is copied out."""
        return {name: request.get_tensor(name).data.copy() for name in self._outputs}

    def close(self) -> None:
        self._request, self._packed, self._side_by_side = None, None, []


class Packing(NamedTuple):
    """Which places of a call hold tokens, with a few more at the end: there are to be few sizes, because the engine
    prepares itself for each.
    """

    shown: Array
    tokens: Array

    @classmethod
    def of(cls, mask: Array) -> Packing:
        shown = mask != 0
        found = np.flatnonzero(shown)
        step = max(_STEP, 1 << len(found).bit_length() >> 5)
        tokens = np.zeros(-(-max(len(found), 1) // step) * step, np.int32)
        tokens[: len(found)] = found
        return cls(shown, tokens)

    @property
    def pays(self) -> bool:
        return self.shown.size - self.tokens.size > max(_COST_TOKENS, _COST_SHARE * self.tokens.size)

    def inputs(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        # Padding finds some token or other: attention hides what stands there, and nobody reads it.
        places = np.maximum(np.cumsum(self.shown, dtype=np.int32) - 1, 0).reshape(self.shown.shape)
        return {**inputs, TOKENS: self.tokens, PLACES: places}


def unpacked(model: Any) -> Any:
    """The packed graph with padding again, as it was before it was packed."""
    given = {node.get_friendly_name(): node for node in model.get_parameters()}
    for name in (TOKENS, PLACES):
        for reader in list(given[name].output(0).get_target_inputs()):
            gather = reader.get_node()
            # Tokens come out of a Reshape that put all places in one row.
            before = gather.input(0).get_source_output().get_node() if name == TOKENS else gather
            source = before.input(0).get_source_output()
            for one in list(gather.output(0).get_target_inputs()):
                one.replace_source_output(source)
    for name in (TOKENS, PLACES):
        model.remove_parameter(given[name])
    model.validate_nodes_and_infer_types()
    return model


def _failure_of(call: Callable[..., object], *arguments: Any, **options: Any) -> Exception | None:
    try:
        call(*arguments, **options)
    except Exception as error:  # whatever OpenVINO raises, the caller gets it
        return error
    return None
