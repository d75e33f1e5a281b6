"""Large tables of token vectors become INT8 rows with scales in both searched candidates, judged like layers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from tests.quantize.int8.test_mixed import LOOSE
from tests.quantize.tensorrt.engines import World
from trimaran.core.artifact import Artifact
from trimaran.core.backends import engine_class
from trimaran.core.corpus import encoder_of, shipped_texts
from trimaran.core.distances import cosine_distances
from trimaran.core.onnx_graph import add_weight, new_node
from trimaran.quantize.int8 import embedding_tables
from trimaran.quantize.int8.embedding_tables import encoded_table, large_tables, write_tables
from trimaran.quantize.int8.mixed import onnxruntime_static, openvino_mixed
from trimaran.quantize.settings import MadeCandidate, MakerSettings

Maker = Callable[[Artifact, Path, MakerSettings], MadeCandidate]


def looked_up(table: Any) -> ir.Model:
    graph = ir.Graph([ir.val("ids", ir.DataType.INT64, (None, None))], [], nodes=[], opset_imports={"": 17})
    weight = add_weight(graph, "table", table)
    node = new_node("Gather", [weight, graph.inputs[0]], "vectors", axis=0)
    node.outputs[0].type, node.outputs[0].shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape((None, None, 8))
    graph.append(node)
    graph.outputs.append(node.outputs[0])
    return ir.Model(graph, ir_version=8)


def test_rows_keep_their_own_scale_and_a_row_of_zeros_stays_zero(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = np.random.default_rng(0).normal(size=(6, 8)).astype(np.float32)
    table[1], table[2] = 0, table[2] * 1000
    model = looked_up(table)
    assert large_tables(model) == [], "small tables stay as they are"
    monkeypatch.setattr(embedding_tables, "SMALLEST_BYTES", 1)
    assert large_tables(model) == ["table"]
    write_tables(model, {"table": encoded_table(model.graph.initializers["table"])})
    ir.save(model, tmp_path / "model.onnx")
    engine = engine_class("onnxruntime")(str(tmp_path / "model.onnx"), threads=1, options={})
    (vectors,) = engine.infer({"ids": np.arange(6)[None]}).values()
    assert (np.abs(vectors[0] - table) <= np.abs(table).max(axis=1, keepdims=True) / 254 + 1e-9).all()
    assert not vectors[0, 1].any()


@pytest.mark.parametrize(("maker", "backend"), [(openvino_mixed, "openvino"), (onnxruntime_static, "onnxruntime")])
def test_both_searched_candidates_hold_no_float_table(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, maker: Maker, backend: str
) -> None:
    parent = world.exported("roberta")
    monkeypatch.setattr(embedding_tables, "SMALLEST_BYTES", 30_000)
    made = maker(parent, tmp_path, LOOSE)
    (table,) = made.details["int8_tables"]
    assert table in [layer["name"] for layer in made.details["sensitivity"]["layers"]]
    assert _stored(tmp_path / made.entry, backend).count((400, 32)) == 0
    if backend == "openvino":
        assert made.details["packed"]
    encoder = encoder_of(parent)
    rows = encoder.rows(shipped_texts("judging")[:6])
    sides = []
    for path, name in ((parent.entry_path, "onnxruntime"), (tmp_path / made.entry, backend)):
        engine = engine_class(name)(str(path), threads=1, options={})
        sides.append(np.concatenate([engine.infer(encoder.batch([row]))["embedding"] for row in rows]))
        engine.close()
    assert cosine_distances(*sides).max() < 5e-3


def _stored(path: Path, backend: str) -> list[tuple[int, ...]]:
    """The shapes of the float weights in the file."""
    if backend == "onnxruntime":
        weights = ir.load(path).graph.initializers.values()
        return [tuple(v.const_value.shape) for v in weights if v.const_value.dtype == ir.DataType.FLOAT]
    import openvino as ov

    constants = [node for node in ov.Core().read_model(path).get_ops() if node.get_type_name() == "Constant"]
    return [tuple(node.shape) for node in constants if node.get_element_type() in (ov.Type.f32, ov.Type.f16)]
