from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from tests.quantize.half.test_fp16 import answers
from tests.quantize.tensorrt.engines import CALIBRATION, TASKS, World
from trimaran.core.artifact import sha256_of
from trimaran.core.corpus import shipped_texts
from trimaran.core.distances import cosine_distances
from trimaran.core.errors import ToolError
from trimaran.quantize.candidates import Maker
from trimaran.quantize.ranges import RANGE_METHODS
from trimaran.quantize.settings import MadeCandidate, MakerSettings
from trimaran.quantize.tensorrt import qdq
from trimaran.quantize.tensorrt.engine_receipt import expected_of
from trimaran.quantize.tensorrt.qdq import tensorrt_int8, tensorrt_int8_attention, tensorrt_int8_full

KINDS = ("onnx-int8-qdq", "onnx-int8-qdq-attention", "onnx-int8-qdq-full")


@pytest.mark.parametrize("family", TASKS)
def test_int8_answers_nearly_like_fp32(world: World, family: str) -> None:
    wanted, found = answers(world.exported(family)), answers(world.graph(family, "onnx-int8-qdq"))
    assert cosine_distances(wanted, found).max() < 1e-3


def test_every_pair_is_what_tensorrt_takes(world: World) -> None:
    """Symmetric, zero points of zero, activations per tensor, weights by output channel, scales in FP16."""
    model = onnx.load(str(world.graph("bert", "onnx-int8-qdq-full").entry_path))
    tensors = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    weights = 0
    for node in model.graph.node:
        if node.op_type not in ("QuantizeLinear", "DequantizeLinear"):
            continue
        scale, point = tensors[node.input[1]], tensors[node.input[2]]
        assert scale.dtype == np.float16 and point.dtype == np.int8 and not point.any()
        if node.input[0] in tensors:
            weights += 1
            assert node.attribute[0].i == 1 and scale.shape == tensors[node.input[0]].shape[1:]
            assert tensors[node.input[0]].min() >= -127
        else:
            assert scale.shape == ()
    assert weights == 12
    assert max(entry.version for entry in model.opset_import) >= 19


def test_attention_and_residual_pairs_are_added_when_asked(world: World) -> None:
    counts = []
    for name in KINDS:
        model = onnx.load(str(world.graph("bert", name).entry_path))
        counts.append(sum(node.op_type == "QuantizeLinear" for node in model.graph.node))
    assert counts == [8, 8 + 2 * 4, 8 + 2 * 4 + 2 * 2]


def test_shared_layers_stay_shared(world: World) -> None:
    model = onnx.load(str(world.graph("albert", "onnx-int8-qdq").entry_path))
    integer = [
        tensor for tensor in model.graph.initializer if tensor.data_type == TensorProto.INT8 and len(tensor.dims) == 2
    ]
    assert len(integer) == 7, "six of the one layer, one of the embeddings' projection"


def test_manifest_tells_what_was_chosen_for_each_layer(world: World) -> None:
    artifact = world.graph("bert", "onnx-int8-qdq")
    assert artifact.precision == "int8-static"
    for facts in artifact.details["encodings"].values():
        assert set(facts) == {"smoothing", "anchor", "range", "reach", "copies", "relative_error", "type"}
        assert facts["range"] in RANGE_METHODS
    assert artifact.details["calibration"]["texts"] == len(CALIBRATION)
    assert artifact.details["layers"] == world.exported("bert").details["layers"], "what the model is stays as it was"


def searched(world: World, folder: Path, maker: Maker, limit: float) -> MadeCandidate:
    gates = (("mean_cosine_distance", "<=", limit),)
    settings = MakerSettings(calibration=shipped_texts("calibration")[:48], gates=gates, budget_s=60.0)
    return maker(world.exported("bert"), folder, settings)


@pytest.mark.parametrize(("limit", "in_int8", "stopped"), [(2.0, 8, "gates keep"), (1e-12, 1, "nothing left")])
def test_the_gates_decide_which_layers_stay_in_fp16(
    world: World, tmp_path: Path, limit: float, in_int8: int, stopped: str
) -> None:
    made = searched(world, tmp_path, tensorrt_int8, limit)
    kinds = [facts["type"] for facts in made.details["encodings"].values()]
    assert (len(kinds), kinds.count("int8")) == (8, in_int8)
    assert made.details["sensitivity"]["stopped"] == stopped
    assert made.details["calibration"]["texts"] == 24, "the other half is held out"


def test_the_search_tries_attentions_and_residual_sums_too(world: World, tmp_path: Path) -> None:
    """All of them, where the gates allow it; each is a row of the search, and its work is less than a layer's."""
    made = searched(world, tmp_path, tensorrt_int8_full, 2.0)
    parts = made.details["parts"]
    assert len(parts) == 2 + 4 and set(parts.values()) == {"int8"}
    assert set(parts) < {layer["name"] for layer in made.details["sensitivity"]["layers"]}
    assert made.details["quantised"] == {"linear": 8, "parts": 6}


def test_attentions_go_back_to_fp16_before_linear_layers(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gates of this search allow all linear layers, and no attention."""
    asked: list[Mapping[str, float]] = []

    def kept_by_gates(*arguments: object, work: Mapping[str, float], **more: object) -> tuple[frozenset[str], None]:
        asked.append(work)
        return frozenset(name for name in work if "MatMul" in name), None

    monkeypatch.setattr(qdq, "search_layers", kept_by_gates)
    with pytest.raises(ToolError, match="this would be onnx-int8-qdq again"):
        searched(world, tmp_path, tensorrt_int8_attention, 2.0)
    attentions = [work for name, work in asked[0].items() if "MatMul" in name]
    layers = [work for name, work in asked[0].items() if "MatMul" not in name]
    assert (len(attentions), len(layers)) == (2, 8)
    assert max(attentions) <= min(layers), "what costs least in FP16 for its loss goes there first"


def test_an_attention_whose_result_stays_in_fp16_stays_there_too(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a Q after the product with V, TensorRT has no INT8 kernel for it."""
    projection = "encoder/layer.1/attention/output/dense"
    monkeypatch.setattr(qdq, "search_layers", lambda *arguments, **more: (frozenset({projection}), None))
    made = searched(world, tmp_path, tensorrt_int8_attention, 2.0)
    assert made.details["encodings"][projection]["type"] == "fp16"
    assert {name.split("/")[3]: kind for name, kind in made.details["parts"].items()} == {
        "layer.0": "int8",
        "layer.1": "fp16",
    }
    expected = expected_of(tmp_path / "model.onnx", world.graph("bert", "onnx-int8-qdq-attention"))
    assert (expected.attention_type, expected.attentions) == ("Int8", 1)


@pytest.mark.parametrize("change", [{"details": {"hidden": 64, "heads": 8}}, {"details": {"hidden": 384, "heads": 3}}])
def test_attention_that_is_no_int8_kernel_is_refused(world: World, tmp_path: Path, change: dict[str, Any]) -> None:
    parent = world.exported("bert")
    unfit = parent.model_copy(update={"details": {**parent.details, **change["details"]}}).at(parent.directory)
    with pytest.raises(ToolError, match="heads of 16, 32, 64 and at most 512 tokens"):
        tensorrt_int8_attention(unfit, tmp_path, MakerSettings(calibration=CALIBRATION))


def test_same_texts_give_the_same_graph(world: World, tmp_path: Path) -> None:
    tensorrt_int8(world.exported("bert"), tmp_path, MakerSettings(calibration=CALIBRATION))
    assert sha256_of(tmp_path / "model.onnx") == sha256_of(world.graph("bert", "onnx-int8-qdq").entry_path)
