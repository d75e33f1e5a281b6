"""The short form of an encoder's mask: the same answers to the last bit, and only where it is the same mask."""

from __future__ import annotations

from typing import Any

import numpy as np
import openvino as ov
import openvino.opset13 as ops
import pytest

from tests.quantize.tensorrt.engines import World
from trimaran.quantize.int8.openvino_mask import MASK, shorten_mask

HEADS, SIZE = 2, 4
LOW = np.float32(np.finfo(np.float32).min)


def named(name: str) -> Any:
    found = ops.parameter([-1, -1], ov.Type.i64)
    found.set_friendly_name(name)
    return found


def attention(*, looks_ahead: bool = True, hides_by_ids: bool = False) -> ov.Model:
    """One layer over a table, with the square mask that a graph out of transformers has."""
    ids, shown = named("input_ids"), named(MASK)
    table = np.random.default_rng(3).standard_normal((9, HEADS * SIZE)).astype(np.float32)
    states = ops.gather(ops.constant(table), ids, ops.constant(0))
    heads = ops.reshape(states, ops.constant([0, 0, HEADS, SIZE]), special_zero=True)
    heads = ops.transpose(heads, ops.constant([0, 2, 1, 3]))
    tokens = ops.gather(ops.shape_of(states), ops.constant(1), ops.constant(0))
    places = ops.range(ops.constant(0, ov.Type.i64), tokens, ops.constant(1, ov.Type.i64), "i64")
    asking, asked = ops.unsqueeze(places, ops.constant(1)), ops.unsqueeze(places, ops.constant(0))
    seen = ops.greater_equal(asking, ops.constant(0, ov.Type.i64) if looks_ahead else asked)
    real = ops.not_equal(ids if hides_by_ids else shown, ops.constant(0, ov.Type.i64))
    both = ops.logical_and(seen, ops.unsqueeze(real, ops.constant([1, 2])))
    mask = ops.select(both, ops.constant(np.float32(0)), ops.constant(LOW))
    found = ops.scaled_dot_product_attention(heads, heads, heads, mask)
    return ov.Model([found.output(0)], [ids, shown])


def answers(model: ov.Model) -> np.ndarray:
    ids = np.random.default_rng(5).integers(1, 9, (3, 7))
    shown = (np.arange(7) < np.array([[7], [4], [1]])).astype(np.int64)
    found = ov.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})([ids, shown])
    return np.asarray(found[0])


def test_a_mask_that_hides_padding_is_one_row_a_text_and_answers_stay_to_the_last_bit() -> None:
    model = attention()
    before, nodes = answers(model), len(model.get_ops())
    assert shorten_mask(model)
    assert len(model.get_ops()) < nodes
    np.testing.assert_array_equal(answers(model), before)


@pytest.mark.parametrize("other", [{"looks_ahead": False}, {"hides_by_ids": True}])
def test_a_mask_that_does_anything_else_stays(other: dict[str, bool]) -> None:
    model = attention(**other)
    before, nodes = answers(model), len(model.get_ops())
    assert not shorten_mask(model)
    assert len(model.get_ops()) == nodes
    np.testing.assert_array_equal(answers(model), before)


def test_a_graph_without_attention_stays() -> None:
    shown = named(MASK)
    assert not shorten_mask(ov.Model([ops.convert(shown, "f32").output(0)], [shown]))


@pytest.mark.parametrize("family", ["bert", "distilbert", "roberta"])
def test_an_exported_encoder_gets_the_short_form(world: World, family: str) -> None:
    model: Any = ov.convert_model(str(world.exported(family).entry_path))
    nodes = len(model.get_ops())
    assert shorten_mask(model)
    assert nodes - len(model.get_ops()) > 20
