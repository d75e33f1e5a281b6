"""Attention in blocks of queries answers as whole attention does, and keeps fewer scores at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.export.exported import QUIET, exported
from tests.export.zoo import saved_model
from trimaran.core.call_memory import ATTENTION_BLOCKS
from trimaran.core.spec import Range, ShapeProfile
from trimaran.core.store import Store
from trimaran.export.locate import locate
from trimaran.quantize import attention_blocks
from trimaran.quantize.attention_blocks import LONG_FROM, block_saved
from trimaran.quantize.candidates import candidate
from trimaran.quantize.settings import MakerSettings
from trimaran.quantize.stage import to_precision
from trimaran.runtime.onnxruntime_engine import Engine

SHARED, OF_EACH_QUERY = "float[batch, 1, 1, tokens] mask", "float[batch, 1, tokens, tokens] mask"


def saved(path: Path, mask: str, *, between: str = "masked = Add(scaled, mask)") -> Path:
    """Two attentions in a row, of two heads of four; the second reads what the first answers."""
    import onnx_ir as ir

    text = f"""<ir_version: 8, opset_import: ["": 17]>
    attention (float[batch, 2, tokens, 4] queries, float[batch, 2, 4, tokens] keys, float[batch, 2, tokens, 4] values,
               {mask}) => (float[batch, 2, tokens, 4] answer)
    <float scale = {{0.5}}> {{
        scores = MatMul(queries, keys)
        scaled = Mul(scores, scale)
        {between}
        weights = Softmax<axis = -1>(masked)
        first = MatMul(weights, values)
        scores2 = MatMul(first, keys)
        masked2 = Add(scores2, mask)
        weights2 = Softmax<axis = -1>(masked2)
        answer = MatMul(weights2, values)
    }}"""
    model = ir.from_proto(onnx.parser.parse_model(text))
    for index, node in enumerate(model.graph):
        node.name = f"node{index}"
    ir.save(model, path)
    return path


def call(tokens: int, *, shared: bool) -> dict[str, Any]:
    generator = np.random.default_rng(tokens)
    lengths = np.array([tokens, max(1, tokens // 2), max(1, tokens - 3)])
    hidden = np.where(np.arange(tokens) < lengths[:, None], 0.0, -1e9).astype(np.float32)[:, None, None, :]
    inputs = {
        "queries": generator.standard_normal((3, 2, tokens, 4), np.float32),
        "keys": generator.standard_normal((3, 2, 4, tokens), np.float32),
        "values": generator.standard_normal((3, 2, tokens, 4), np.float32),
        "mask": hidden,
    }
    if not shared:
        # Local attention: each query sees its neighbours.
        places = np.arange(tokens)
        near = np.where(np.abs(places[:, None] - places) < 4, 0.0, -1e9).astype(np.float32)
        inputs["mask"] = np.ascontiguousarray(hidden + near)
    return inputs


@pytest.mark.parametrize("shared", [True, False], ids=["one mask for all queries", "a mask of each query"])
def test_blocks_answer_as_the_whole_does_whether_they_fill_the_text_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    monkeypatch.setattr(attention_blocks, "BLOCK", 8)
    whole = saved(tmp_path / "whole.onnx", SHARED if shared else OF_EACH_QUERY)
    blocks = saved(tmp_path / "blocks.onnx", SHARED if shared else OF_EACH_QUERY)
    assert block_saved(blocks, LONG_FROM + 1) == 2
    onnx.checker.check_model(str(blocks), full_check=True)
    engines = [Engine(str(path), threads=1) for path in (whole, blocks)]
    for tokens in (1, 7, 8, 9, 16, 29):
        one, other = (engine.infer(call(tokens, shared=shared))["answer"] for engine in engines)
        np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.mark.parametrize("layer", ["local", "causal"])
def test_a_block_reads_no_key_that_its_mask_hides_from_all_of_its_queries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layer: str
) -> None:
    """A weight of 0 times NaN is NaN. So values that are NaN show which of them are read."""
    monkeypatch.setattr(attention_blocks, "BLOCK", 8)
    whole, blocks = (saved(tmp_path / f"{name}.onnx", OF_EACH_QUERY) for name in ("whole", "blocks"))
    assert block_saved(blocks, LONG_FROM + 1) == 2
    inputs, places = call(29, shared=True), np.arange(29)
    apart = places[:, None] - places
    shown = np.abs(apart) < 4 if layer == "local" else apart >= 0
    hidden = np.where(shown, 0.0, np.finfo(np.float32).min).astype(np.float32)
    inputs["mask"] = np.ascontiguousarray(np.broadcast_to(hidden, (3, 1, 29, 29)))
    one, other = (Engine(str(path), threads=1).infer(inputs)["answer"] for path in (whole, blocks))
    np.testing.assert_allclose(one, other, atol=1e-6)
    inputs["values"][:, :, 20:] = np.nan
    answer = Engine(str(blocks), threads=1).infer(inputs)["answer"]
    # The second attention reads the first one's answers as its queries.
    assert np.isfinite(answer[:, :, :16]).all() and np.isnan(answer[:, :, 24:]).all()


def test_queries_that_see_nothing_leave_the_others_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_blocks, "BLOCK", 8)
    whole, blocks = (saved(tmp_path / f"{name}.onnx", OF_EACH_QUERY) for name in ("whole", "blocks"))
    block_saved(blocks, LONG_FROM + 1)
    inputs, places = call(29, shared=True), np.arange(29)
    shown = (np.abs(places[:, None] - places) < 4) & (places < 9)
    hidden = np.where(shown, 0.0, np.finfo(np.float32).min).astype(np.float32)
    inputs["mask"] = np.ascontiguousarray(np.broadcast_to(hidden, (3, 1, 29, 29)))
    one, other = (Engine(str(path), threads=1).infer(inputs)["answer"] for path in (whole, blocks))
    np.testing.assert_allclose(one[:, :, :9], other[:, :, :9], atol=1e-6)
    assert np.isfinite(other).all()


def test_no_product_of_queries_and_keys_is_left_outside_the_loops(tmp_path: Path) -> None:
    path = saved(tmp_path / "model.onnx", SHARED)
    block_saved(path, LONG_FROM + 1)
    graph = onnx.load(path).graph
    assert not {"MatMul", "Softmax"} & {node.op_type for node in graph.node}
    bodies = [attribute.g for node in graph.node if node.op_type == "Loop" for attribute in node.attribute]
    assert [sum(node.op_type == "MatMul" for node in body.node) for body in bodies] == [2, 2]


def test_a_profile_of_short_texts_keeps_its_attention(tmp_path: Path) -> None:
    path = saved(tmp_path / "model.onnx", SHARED)
    before = path.read_bytes()
    assert block_saved(path, LONG_FROM) == 0 and path.read_bytes() == before


def test_an_attention_whose_scores_are_turned_over_is_left_as_it_is(tmp_path: Path) -> None:
    turned = "over = Transpose<perm = [0, 1, 3, 2]>(scaled)\n masked = Add(over, mask)"
    path = saved(tmp_path / "model.onnx", SHARED, between=turned)
    assert block_saved(path, LONG_FROM + 1) == 1, "only the second one has blocks"
    assert [node.op_type for node in onnx.load(path).graph.node].count("Softmax") == 1


@pytest.mark.parametrize("family", ["modernbert", "qwen3"])
def test_a_candidate_for_long_texts_has_blocks_in_every_layer_and_equals_its_parent(
    tmp_path: Path, family: str
) -> None:
    """Local and full layers, and grouped heads; the stage itself compares the candidate with its parent."""
    folder = saved_model(tmp_path / "model", family, "embedding", max_position_embeddings=LONG_FROM + 400)
    profile = ShapeProfile(
        batch=Range(minimum=1, typical=1, maximum=2), sequence=Range(minimum=1, typical=16, maximum=LONG_FROM + 300)
    )
    graph = exported(locate(str(folder), task_name="embedding"), tmp_path, profile=profile)
    made = to_precision(
        graph, candidate("onnxruntime-fp32"), MakerSettings(), store=Store(tmp_path / "store"), progress=QUIET
    )
    assert made.details[ATTENTION_BLOCKS] == graph.details["layers"] == 2
    inputs = {
        "input_ids": np.random.default_rng(0).integers(5, 300, (1, LONG_FROM + 300)),
        "attention_mask": np.ones((1, LONG_FROM + 300), np.int64),
    }
    whole, blocks = (Engine(str(artifact.entry_path), threads=1).infer(inputs) for artifact in (graph, made))
    np.testing.assert_allclose(whole["embedding"], blocks["embedding"], atol=1e-6)
