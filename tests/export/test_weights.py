"""Weights in the file: each once, folded where nothing is doubled, beside the graph when one file cannot hold them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.export import zoo
from tests.export.exported import QUIET, Exports, exported, exported_family
from trimaran.core.artifact import Artifact
from trimaran.core.corpus import shipped_texts
from trimaran.core.onnx_graph import save_graph
from trimaran.core.store import Store
from trimaran.export.locate import locate
from trimaran.pipeline.making import make_one_candidate
from trimaran.quantize.candidates import candidate
from trimaran.quantize.optimize import optimize
from trimaran.quantize.settings import Settings
from trimaran.quantize.stage import to_precision
from trimaran.runtime.onnxruntime_engine import Engine

# Six layers that are one, and a table as large as that layer, tied to the masked-LM head.
ALBERT = {"hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": 6, "embedding_size": 512}
CANDIDATES = (
    "onnxruntime-int8-dynamic",
    "openvino-fp32",
    "openvino-int8-static",
    "openvino-int8-mixed",
    "openvino-int8-weights",
)


def _fused(graph: Artifact, root: Path) -> Artifact:
    return optimize(graph, store=Store(root / "store"), progress=QUIET)


@pytest.mark.parametrize("task", ["embedding", "fill-mask"])
def test_albert_stays_as_small_as_its_checkpoint(tmp_path: Path, task: str) -> None:
    graph = exported_family(tmp_path, "albert", task, **ALBERT)
    fused = _fused(graph, tmp_path)
    limit = 1.1 * graph.details["checkpoint_fp32_bytes"]
    assert graph.size_bytes <= limit
    assert fused.size_bytes <= limit
    assert fused.details["fused_nodes"]["Attention"] == 6
    # The turned table of the masked-LM head alone is not computed at export: it would be stored twice.
    assert graph.details["foldable_nodes"] == (1 if task == "fill-mask" else 0)


@pytest.mark.slow
def test_albert_stays_so_through_every_quantisation(tmp_path: Path) -> None:
    graph = exported_family(tmp_path, "albert", "fill-mask", **ALBERT)
    fused = _fused(graph, tmp_path)
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(text.replace("\n", " ") for text in shipped_texts("calibration")[:48]), encoding="utf-8")
    limit = 1.1 * graph.details["checkpoint_fp32_bytes"]
    for name in CANDIDATES:
        parent = fused if name.startswith("onnxruntime") else graph
        made = make_one_candidate(
            str(parent.directory), name, texts, 2, store=Store(tmp_path / "store"), progress=QUIET
        )
        assert made.size_bytes <= limit, name


@pytest.mark.parametrize("family", sorted(zoo.ZOO))
def test_no_family_grows_by_being_exported(exports: Exports, family: str) -> None:
    """Tables of positions that the model computes may be stored; no weight is stored twice."""
    graph = exports(family, "embedding")
    assert graph.details["foldable_nodes"] == 0
    assert not {"MatMul", "Softmax", "Erf", "LayerNormalization"} & set(graph.details["int64_operators"])
    stored = _stored_bytes(graph.entry_path)
    assert stored <= 1.1 * graph.details["checkpoint_fp32_bytes"] + 4096


def _stored_bytes(path: Path) -> int:
    import onnx

    return sum(len(tensor.raw_data) for tensor in onnx.load(str(path)).graph.initializer)


def test_weights_beyond_the_limit_go_beside_the_graph(tmp_path: Path) -> None:
    import onnx

    folder = zoo.saved_model(tmp_path / "model", "bert", "embedding")
    graph = exported(locate(str(folder)), tmp_path, external_above_bytes=10_000)
    assert graph.details["external_weights"] is True
    assert [file.name for file in graph.files] == ["model.onnx", "model.onnx.data", "tokenizer.json"]
    onnx.checker.check_model(str(graph.entry_path), full_check=True)
    fused = _fused(graph, tmp_path)
    assert (fused.directory / "model.onnx.data").is_file()
    assert fused.details["fused_nodes"]["EmbedLayerNormalization"] == 1


@pytest.mark.parametrize("name", ["onnxruntime-fused", "onnxruntime-int8-dynamic"])
def test_weights_beside_a_graph_go_on_through_the_line(tmp_path: Path, name: str) -> None:
    """OpenVINO takes them too: `benchmarks/export_cost.py large` holds the real thing, of 2.2 GB."""
    folder = zoo.saved_model(tmp_path / "model", "bert", "embedding")
    graph = exported(locate(str(folder)), tmp_path, external_above_bytes=10_000)
    store = Store(tmp_path / "store")
    made = to_precision(_fused(graph, tmp_path), candidate(name), Settings(), store=store, progress=QUIET)
    assert [file.name for file in made.files] == ["model.onnx", "model.onnx.data", "tokenizer.json"]


@pytest.mark.parametrize("external_above_bytes", [1 << 30, 0])
def test_a_written_graph_reads_as_it_was(tmp_path: Path, external_above_bytes: int) -> None:
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    generator = np.random.default_rng(0)
    arrays = {
        "table": generator.standard_normal((300, 7)).astype(np.float32),
        "half": generator.standard_normal((2, 3)).astype(np.float16),
        "empty": np.zeros((0, 4), np.float32),
        "scalar": np.array(3, np.int64),
    }
    tensors = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    tensors.append(helper.make_tensor("unpacked", TensorProto.FLOAT, [3], [1.0, 2.5, -3.0]))
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "ids"], ["out"])],
        "a graph",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch"])],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, ["batch", 7])],
        tensors,
        doc_string="words",
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9, producer_name="p")
    path = tmp_path / "model.onnx"
    assert save_graph(model, path, external_above_bytes=external_above_bytes) is (external_above_bytes == 0)
    onnx.checker.check_model(str(path), full_check=True)
    found = onnx.load(str(path))
    for tensor in found.graph.initializer:
        wanted = arrays.get(tensor.name, np.array([1.0, 2.5, -3.0], np.float32))
        np.testing.assert_array_equal(numpy_helper.to_array(tensor), wanted)
        assert list(tensor.dims) == list(wanted.shape)
    for kept in (model, found):
        del kept.graph.initializer[:]
    assert found == model
    ids = np.array([5, 299], np.int64)
    np.testing.assert_array_equal(Engine(str(path), threads=1).infer({"ids": ids})["out"], arrays["table"][ids])
