"""An OpenVINO IR, or an ONNX file, in OpenVINO on the CPU."""

from __future__ import annotations

import json
import sys
import threading
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
_NOTE, _FIXED_NOTE = ["trimaran", "packed"], ["trimaran", "fixed_widths"]
# Packing costs as much time as these tokens, and a share of what is packed.
_COST_TOKENS, _COST_SHARE = 8, 1 / 32
_STEP = 8


class Engine:
    """A graph that notes how is packed, and computes next to nothing for padding. Calls that have hardly any take it as
    it is, which is quicker for them and answers the same to the last bit; it costs a second copy of the compiled model.

    If the graph notes widths, a single text of such a width runs on a copy that is compiled for this one shape. It
    answers the same to the last bit, and spends less time between its kernels. With `copies_later` these copies are
    compiled while the engine already answers: a server that starts again is then ready sooner.

    With `streams`, calls that come together run side by side, a share of the threads each: two calls of one thread
    wait less for each other than one call of two threads. It costs another copy.
    """

    def __init__(
        self,
        path: str,
        *,
        threads: int,
        options: Mapping[str, Any] | None = None,
        streams: int = 1,
        copies_later: bool = False,
    ) -> None:
        # With this package OpenVINO reports its use to its maker, and writes into the home folder.
        sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
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
        plan = Plan.of(model)
        compiled = core.compile_model(model, "CPU", settings)
        self._request = compiled.create_infer_request()
        self._outputs = [output.get_any_name() for output in compiled.outputs]
        plain = model
        model = packed(model, plan) if plan else model
        self._packed: Any = core.compile_model(model, "CPU", settings).create_infer_request() if plan else None
        self._side_by_side: list[Any] = []
        if streams > 1:
            shared = core.compile_model(model, "CPU", {**settings, "NUM_STREAMS": streams})
            self._side_by_side = [shared.create_infer_request() for _ in range(streams)]
        self._by_width: dict[int, Any] = {}
        self._copying: threading.Thread | None = None
        if copies_later:
            self._copying = threading.Thread(target=self._compile_copies, args=(core, plain, settings))
            self._copying.start()
        else:
            self._compile_copies(core, plain, settings)

    def _compile_copies(self, core: Any, model: Any, settings: Mapping[str, Any]) -> None:
        for width in fixed_widths(model):
            compiled = core.compile_model(for_one_text(model, width), "CPU", settings)
            self._by_width[width] = compiled.create_infer_request()

    def infer(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        if self._by_width and (request := self._fixed_for(inputs)):
            request.infer(dict(inputs), share_inputs=True)
            return self._read(request)
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
        # After inputs that do not fit each other, a stream of OpenVINO 2026 may refuse right ones for good.
        for inputs in calls:
            if len(shapes := {array.shape for array in inputs.values()}) > 1:
                raise ValueError(
                    f"The inputs of an encoder have one shape, found {', '.join(map(str, sorted(shapes)))}."
                )
        if self._packed:
            calls = [Packing.of(inputs["attention_mask"]).inputs(inputs) for inputs in calls]
        answers: list[dict[str, Array]] = []
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
            answers += [self._read(request) for request, _ in together]
        return answers

    def _fixed_for(self, inputs: Mapping[str, Array]) -> Any:
        rows, width = next(iter(inputs.values())).shape
        return self._by_width.get(width) if rows == 1 else None

    def _read(self, request: Any) -> dict[str, Array]:
        """The tensors belong to the request and are overwritten by the next call, so each is copied out."""
        return {name: request.get_tensor(name).data.copy() for name in self._outputs}

    def close(self) -> None:
        if self._copying:
            self._copying.join()
        self._request, self._packed, self._side_by_side, self._by_width = None, None, [], {}


class Packing(NamedTuple):
    """Which places of a call hold tokens, with a few more at the end: there are to be few sizes, because the engine
    prepares itself for each.
    """

    shown: Array
    tokens: Array

    @classmethod
    def of(cls, mask: Array) -> Packing:
        shown = mask != 0
        real_tokens = np.flatnonzero(shown)
        step = max(_STEP, 1 << len(real_tokens).bit_length() >> 5)
        tokens = np.zeros(-(-max(len(real_tokens), 1) // step) * step, np.int32)
        tokens[: len(real_tokens)] = real_tokens
        return cls(shown, tokens)

    @property
    def pays(self) -> bool:
        return self.shown.size - self.tokens.size > max(_COST_TOKENS, _COST_SHARE * self.tokens.size)

    def inputs(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        # Padding finds some token or other: attention hides what stands there, and nobody reads it.
        token_numbers = np.maximum(np.cumsum(self.shown, dtype=np.int32) - 1, 0).reshape(self.shown.shape)
        return {**inputs, TOKENS: self.tokens, PLACES: token_numbers}


class Plan(NamedTuple):
    """What of a graph is computed token by token, by names of nodes: those whose outputs are what tokens are taken
    from, and those that work on tokens alone. It is noted in the graph's own file, which any OpenVINO can run as it is.
    """

    sources: list[str]
    inner: list[str]

    @classmethod
    def of(cls, model: Any) -> Plan | None:
        return cls(**json.loads(model.get_rt_info(_NOTE).astype(str))) if model.has_rt_info(_NOTE) else None

    def note(self, model: Any) -> None:
        model.set_rt_info(json.dumps(self._asdict()), _NOTE)


def packed(model: Any, plan: Plan) -> Any:
    """A copy of the graph in which the tokens of all texts stand in one row, [tokens, 1, features], wherever it works
    token by token; the rest sees [texts, tokens, features] with padding, as before.
    """
    import openvino as ov
    import openvino.opset13 as ops

    copy = model.clone()
    nodes = {node.get_friendly_name(): node for node in copy.get_ops()}
    tokens, token_numbers = ops.parameter([-1], ov.Type.i32), ops.parameter([-1, -1], ov.Type.i32)
    for parameter, name in ((tokens, TOKENS), (token_numbers, PLACES)):
        parameter.set_friendly_name(name)
        parameter.output(0).set_names({name})
    first, inner = ops.constant(np.int64(0)), set(plan.inner)

    def readers(name: str, *, inside: bool) -> list[Any]:
        consumers = nodes[name].output(0).get_target_inputs()
        return [consumer for consumer in consumers if (consumer.get_node().get_friendly_name() in inner) == inside]

    for name in plan.sources:
        output, inside = nodes[name].output(0), readers(name, inside=True)
        in_a_row = ops.reshape(output, ops.constant(np.array([-1, 1, _features(output)])), special_zero=False)
        taken = ops.gather(in_a_row, tokens, first)
        for reader in inside:
            reader.replace_source_output(taken.output(0))
    for name in plan.inner:
        output, outside = nodes[name].output(0), readers(name, inside=False)
        if not outside:
            continue
        spread = ops.gather(output, token_numbers, first)
        texts = ops.reshape(spread, ops.constant(np.array([0, 0, _features(output)])), special_zero=True)
        for reader in outside:
            # Who splits heads takes the features from [texts, tokens, 1, features] as well.
            source = spread if _keeps_texts_and_tokens(reader.get_node()) else texts
            reader.replace_source_output(source.output(0))
    copy.add_parameters([tokens, token_numbers])
    copy.validate_nodes_and_infer_types()
    return copy


def fixed_widths(model: Any) -> list[int]:
    """The widths that the graph's file notes; none of most graphs."""
    return list(json.loads(model.get_rt_info(_FIXED_NOTE).astype(str))) if model.has_rt_info(_FIXED_NOTE) else []


def note_widths(model: Any, widths: Sequence[int]) -> None:
    model.set_rt_info(json.dumps(list(widths)), _FIXED_NOTE)


def for_one_text(model: Any, width: int) -> Any:
    """A copy of the graph that takes one text of this width and nothing else."""
    copy = model.clone()
    copy.reshape({parameter.get_any_name(): [1, width] for parameter in copy.inputs})
    return copy


def _features(output: Any) -> int:
    return int(output.get_partial_shape()[2].get_length())


def _keeps_texts_and_tokens(node: Any) -> bool:
    if node.get_type_name() != "Reshape" or not node.get_attributes()["special_zero"]:
        return False
    return constant_values(node.input(1).get_source_output().get_node())[:2] == [0, 0]


def constant_values(node: Any) -> list[Any]:
    return list(node.get_data().ravel().tolist()) if node.get_type_name() == "Constant" else []


def _failure_of(call: Callable[..., object], *arguments: Any, **options: Any) -> Exception | None:
    try:
        call(*arguments, **options)
    except Exception as error:  # whatever OpenVINO raises, the caller gets it
        return error
    return None
