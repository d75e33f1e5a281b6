"""Weights in the file: each once, folded where nothing is doubled, beside the graph when one file cannot hold them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.export import zoo
from tests.export.exported import QUIET, Exports, exported, exported_family
from trimaran.core.artifact import Artifact
from trimaran.core.corpus import shipped_texts
from trimaran.core.store import Store
from trimaran.export.locate import locate
from trimaran.pipeline.making import make_one_candidate
from trimaran.quantize.candidates import candidate
from trimaran.quantize.optimize import optimize
from trimaran.quantize.settings import MakerSettings
from trimaran.quantize.stage import to_precision

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
    made = to_precision(_fused(graph, tmp_path), candidate(name), MakerSettings(), store=store, progress=QUIET)
    assert [file.name for file in made.files] == ["model.onnx", "model.onnx.data", "tokenizer.json"]
