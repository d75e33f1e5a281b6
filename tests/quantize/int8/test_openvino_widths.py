"""Short single texts run on copies of the graph that are compiled for one shape, with the same bits in the answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import pytest

from tests.quantize.int8.test_openvino_packed import layer, named
from tests.quantize.tensorrt.engines import World
from trimaran.quantize.int8 import openvino_widths
from trimaran.quantize.int8.openvino_graph import pack_saved, save_openvino
from trimaran.quantize.int8.openvino_mask import MASK
from trimaran.quantize.int8.openvino_widths import LARGEST_BYTES, WIDTHS, note_fixed_widths
from trimaran.runtime.openvino_engine import Engine, fixed_widths


class CountingRequest:
    """Passes calls on to an inference request, and notes their shapes."""

    def __init__(self, request: Any) -> None:
        self._request, self.shapes = request, []

    def infer(self, inputs: dict[str, np.ndarray], **options: Any) -> None:
        self.shapes.append(inputs["input_ids"].shape)
        self._request.infer(inputs, **options)

    def get_tensor(self, name: str) -> Any:
        return self._request.get_tensor(name)


def one_text(names: list[str], tokens: int, width: int) -> dict[str, np.ndarray]:
    inputs = {name: np.zeros((1, width), np.int64) for name in names}
    inputs["input_ids"] = np.random.default_rng(tokens).integers(2, 9, (1, width))
    return {**inputs, MASK: (np.arange(width)[None] < tokens).astype(np.int64)}


@pytest.mark.parametrize("family", ["bert", "distilbert"])
def test_a_short_text_is_answered_by_the_copy_of_its_width_as_by_the_graph(
    world: World, tmp_path: Path, family: str
) -> None:
    model: Any = ov.convert_model(str(world.exported(family).entry_path))
    path = tmp_path / save_openvino(model, tmp_path)
    plain = Engine(str(path), threads=1)
    assert pack_saved(path) == {"packed": True, "fixed_widths": list(WIDTHS)}
    engine = Engine(str(path), threads=1)
    counting = {width: CountingRequest(request) for width, request in engine._by_width.items()}
    engine._by_width = dict(counting)
    names = [parameter.get_any_name() for parameter in model.inputs]
    for width in WIDTHS:
        for tokens in (1, width - 3, width):
            inputs = one_text(names, tokens, width)
            wanted = plain.infer(inputs)
            for name, answer in engine.infer(inputs).items():
                np.testing.assert_array_equal(answer, wanted[name])
        assert counting[width].shapes == [(1, width)] * 3


def test_other_widths_and_several_texts_run_on_the_graph_itself(tmp_path: Path) -> None:
    path = tmp_path / save_openvino(layer(), tmp_path)
    pack_saved(path)
    engine = Engine(str(path), threads=1)
    # None of these can infer.
    engine._by_width = dict.fromkeys(WIDTHS, object())
    for shape in ((1, 8), (1, 3 * WIDTHS[0]), (2, WIDTHS[0])):
        inputs = {"input_ids": np.full(shape, 3), MASK: np.ones(shape, np.int64)}
        assert next(iter(engine.infer(inputs).values())).shape[:2] == shape


def test_an_engine_that_compiles_its_copies_later_answers_the_same_before_and_after(tmp_path: Path) -> None:
    path = tmp_path / save_openvino(layer(), tmp_path)
    pack_saved(path)
    inputs = {"input_ids": np.full((1, WIDTHS[0]), 3), MASK: np.ones((1, WIDTHS[0]), np.int64)}
    (wanted,) = Engine(str(path), threads=1).infer(inputs).values()
    engine = Engine(str(path), threads=1, copies_later=True)
    answers = [*engine.infer(inputs).values()]
    engine._copying.join()
    assert sorted(engine._by_width) == sorted(WIDTHS)
    for answer in (*answers, *engine.infer(inputs).values()):
        np.testing.assert_array_equal(answer, wanted)
    engine.close()


def test_a_graph_whose_copy_answers_otherwise_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def moved(model: Any, width: int) -> Any:
        """A copy that reads the mask as if every place held a token."""
        copy = model.clone()
        shown = next(parameter for parameter in copy.get_parameters() if parameter.get_friendly_name() == MASK)
        ones = ov.opset13.broadcast(ov.opset13.constant(np.int64(1)), ov.opset13.shape_of(shown))
        for reader in shown.output(0).get_target_inputs():
            if reader.get_node().get_type_name() != "ShapeOf":
                reader.replace_source_output(ones.output(0))
        return copy

    model = layer()
    assert note_fixed_widths(model, LARGEST_BYTES) == list(WIDTHS)
    other = layer()
    monkeypatch.setattr(openvino_widths, "for_one_text", moved)
    assert note_fixed_widths(other, LARGEST_BYTES) == []
    assert fixed_widths(other) == []


def test_a_large_graph_gets_no_copies() -> None:
    model = layer()
    assert note_fixed_widths(model, LARGEST_BYTES + 1) == []
    assert fixed_widths(model) == []


def test_a_graph_that_cannot_be_packed_has_no_widths(tmp_path: Path) -> None:
    shown = named(MASK)
    model = ov.Model([ov.opset13.convert(shown, "f32").output(0)], [shown])
    assert pack_saved(tmp_path / save_openvino(model, tmp_path)) == {"packed": False}
