"""A graph that computes next to nothing for padding: the same answers to the last bit, and only where they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import openvino.opset13 as ops
import pytest

from tests.quantize.padded_rows import assert_padding_changes_nothing, padded_inputs
from tests.quantize.tensorrt.engines import World
from trimaran.quantize.int8.openvino_graph import pack_saved, save_openvino
from trimaran.quantize.int8.openvino_mask import MASK
from trimaran.quantize.int8.openvino_packed import note_packing
from trimaran.runtime.openvino_engine import PLACES, TOKENS, Engine, Packing, Plan, packed

HEADS, SIZE = 2, 4
FEATURES = HEADS * SIZE


def named(name: str) -> Any:
    found = ops.parameter([-1, -1], ov.Type.i64, name=name)
    found.output(0).set_names({name})
    return found


def layer(*, mixes_tokens: bool = False, masked: bool = True) -> ov.Model:
    """One layer over a table; `mixes_tokens` takes the mean over each text's places, padding too, from its states."""
    ids, shown = named("input_ids"), named(MASK if masked else "shown")
    generator = np.random.default_rng(3)
    table, weights = (generator.standard_normal((size, FEATURES)).astype(np.float32) for size in (9, FEATURES))
    states = ops.gather(ops.constant(table), ids, ops.constant(0))
    heads = ops.reshape(
        ops.matmul(states, ops.constant(weights), False, False), ops.constant([0, 0, HEADS, SIZE]), special_zero=True
    )
    heads = ops.transpose(heads, ops.constant([0, 2, 1, 3]))
    hidden = ops.select(
        ops.not_equal(shown, ops.constant(0, ov.Type.i64)),
        ops.constant(np.float32(0)),
        ops.constant(np.float32(np.finfo(np.float32).min)),
    )
    found = ops.scaled_dot_product_attention(heads, heads, heads, ops.unsqueeze(hidden, ops.constant([1, 2])))
    joined = ops.reshape(
        ops.transpose(found, ops.constant([0, 2, 1, 3])), ops.constant([0, 0, FEATURES]), special_zero=True
    )
    after = ops.add(states, joined)
    if mixes_tokens:
        after = ops.subtract(after, ops.reduce_mean(after, ops.constant([1]), keep_dims=True))
    after.output(0).set_names({"states"})
    return ov.Model([after.output(0)], [ids, shown])


def inputs_of(model: ov.Model) -> dict[str, np.ndarray]:
    return padded_inputs(each.get_any_name() for each in model.inputs)


def opened(model: ov.Model, folder: Path) -> Engine:
    folder.mkdir()
    return Engine(str(folder / save_openvino(model, folder)), threads=1)


@pytest.mark.parametrize("family", ["bert", "albert", "distilbert", "roberta"])
def test_an_exported_encoder_leaves_padding_out_and_answers_the_same(world: World, tmp_path: Path, family: str) -> None:
    model: Any = ov.convert_model(str(world.exported(family).entry_path))
    plain = opened(model, tmp_path / "plain")
    assert note_packing(model)
    plan = Plan.of(model)
    assert plan is not None
    short = packed(model, plan)
    products = [node for node in short.get_ops() if node.get_type_name() == "MatMul"]
    in_a_row = [node for node in products if str(node.get_output_partial_shape(0)).startswith("[?,1,")]
    assert len(in_a_row) >= 6, "query, key, value, output and both of the feed-forward part"
    inputs = inputs_of(model)
    assert Packing.of(inputs[MASK]).pays
    assert_padding_changes_nothing(opened(model, tmp_path / "packed"), plain, inputs)


def test_the_file_is_the_plain_graph_with_a_note(tmp_path: Path) -> None:
    """Triton's own OpenVINO backend reads it too, and knows nothing of packing."""
    model = layer()
    assert pack_saved(tmp_path / save_openvino(model, tmp_path))["packed"]
    assert {path.name for path in tmp_path.iterdir()} == {"model.xml", "model.bin"}
    read = ov.Core().read_model(tmp_path / "model.xml")
    assert [found.get_any_name() for found in read.inputs] == ["input_ids", MASK]
    plan = Plan.of(read)
    assert plan is not None
    assert {TOKENS, PLACES} < {found.get_any_name() for found in packed(read, plan).inputs}
    inputs = inputs_of(read)
    wanted = ov.Core().compile_model(read, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})(inputs)["states"]
    found = Engine(str(tmp_path / "model.xml"), threads=1).infer(inputs)["states"]
    shown = inputs[MASK] != 0
    np.testing.assert_array_equal(found[shown], wanted[shown])


def test_what_reads_padding_is_not_packed() -> None:
    assert note_packing(layer())
    other = layer(mixes_tokens=True)
    assert not note_packing(other)
    assert Plan.of(other) is None


def test_a_graph_without_a_mask_or_without_attention_stays() -> None:
    assert not note_packing(layer(masked=False))
    shown = named(MASK)
    assert not note_packing(ov.Model([ops.convert(shown, "f32").output(0)], [shown]))


def test_packings_have_few_sizes_and_every_place_finds_its_token() -> None:
    generator = np.random.default_rng(0)
    sizes = set()
    for _ in range(300):
        mask = (np.arange(64) < generator.integers(1, 65, (int(generator.integers(1, 33)), 1))).astype(np.int64)
        packing = Packing.of(mask)
        tokens = int(mask.sum())
        assert tokens <= packing.tokens.size <= max(tokens + 7, tokens * 17 / 16)
        sizes.add(packing.tokens.size)
        places = packing.inputs({})[PLACES]
        shown = np.flatnonzero(mask)
        np.testing.assert_array_equal(packing.tokens[places.ravel()[shown]], shown)
    assert len(sizes) < 80


def test_a_call_with_hardly_any_padding_is_not_packed() -> None:
    assert not Packing.of(np.ones((32, 128), np.int64)).pays
    assert not Packing.of((np.arange(16) < 12).astype(np.int64)[None]).pays
    assert Packing.of((np.arange(32) < np.array([[9], [30], [17]])).astype(np.int64)).pays
