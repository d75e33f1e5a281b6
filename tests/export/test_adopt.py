"""An ONNX file of another exporter, with its config and tokenizer, becomes an artifact that stages and `load` take."""

from __future__ import annotations

import json
import shutil
from itertools import chain
from pathlib import Path

import numpy as np
import onnx
import pytest

import trimaran
from tests.export.exported import QUIET, Exports, model_folder
from tests.texts import judging_pairs
from trimaran.core.errors import UsageError
from trimaran.core.store import Store
from trimaran.export.adopt import adopt
from trimaran.pipeline.exporting import open_graph
from trimaran.pipeline.library import GRAPH_IS_REFERENCE
from trimaran.quantize.optimize import optimize

TEXTS = ["Angela Merkel visited Paris in 2015, didn't she?", "I love pizza."]


def foreign_folder(exports: Exports, root: Path, task: str, names: dict[str, str]) -> Path:
    """The folder that optimum would write: no weights, and the outputs under its names."""
    ours = exports("bert", task)
    shutil.copytree(model_folder(ours), root, ignore=shutil.ignore_patterns("*.safetensors"))
    model = onnx.load(ours.entry_path)
    for output in model.graph.output:
        theirs = names[output.name]
        for node in model.graph.node:
            node.output[:] = [theirs if name == output.name else name for name in node.output]
        output.name = theirs
    onnx.save(model, root / "model.onnx")
    return root


def test_a_file_with_its_tokenizer_is_loaded_and_optimised(exports: Exports, tmp_path: Path) -> None:
    ours = exports("bert", "token-classification")
    folder = foreign_folder(exports, tmp_path / "optimum", "token-classification", {"token_logits": "logits"})
    store = Store(tmp_path / "store")
    for reference in (folder, folder / "model.onnx"):
        adopted = open_graph(str(reference), store=store, progress=QUIET)
        assert adopted.task == "token-classification"
        assert "not compared with trained weights" in adopted.details["reference"]
        assert all(check.holds for check in adopted.checks)
    fused = optimize(adopted, store=store, progress=QUIET)
    wanted = trimaran.load(ours.directory).entities(TEXTS, aggregation_strategy="none", ignore_labels=[])
    for artifact in (adopted, fused):
        found = trimaran.load(artifact.directory, store=store.root).entities(
            TEXTS, aggregation_strategy="none", ignore_labels=[]
        )
        for row, other in zip(chain(*found), chain(*wanted), strict=True):
            assert (row["entity"], row["start"], row["word"]) == (other["entity"], other["start"], other["word"])
            np.testing.assert_allclose(row["score"], other["score"], atol=1e-5)


def test_outputs_that_are_not_those_of_the_task_are_refused_with_their_names(exports: Exports, tmp_path: Path) -> None:
    folder = foreign_folder(exports, tmp_path / "other", "token-classification", {"token_logits": "scores"})
    with pytest.raises(UsageError, match="outputs scores; token-classification of a bert wants"):
        adopt(folder / "model.onnx", store=Store(tmp_path / "store"), progress=QUIET)


def test_a_file_without_its_config_says_what_is_missing(exports: Exports, tmp_path: Path) -> None:
    (tmp_path / "alone" / "deep").mkdir(parents=True)
    shutil.copy(exports("bert", "token-classification").entry_path, tmp_path / "alone" / "deep" / "model.onnx")
    with pytest.raises(UsageError, match=r"no config\.json beside"):
        adopt(tmp_path / "alone" / "deep" / "model.onnx", store=Store(tmp_path / "store"), progress=QUIET)


def test_another_file_gives_another_artifact(exports: Exports, tmp_path: Path) -> None:
    folder = foreign_folder(exports, tmp_path / "optimum", "token-classification", {"token_logits": "logits"})
    store = Store(tmp_path / "store")
    first = adopt(folder / "model.onnx", store=store, progress=QUIET)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "note": "another"}))
    assert adopt(folder / "model.onnx", store=store, progress=QUIET).digest != first.digest


@pytest.mark.slow
def test_a_graph_without_weights_is_deployed_as_its_own_reference(exports: Exports, tmp_path: Path) -> None:
    folder = foreign_folder(exports, tmp_path / "optimum", "text-classification", {"logits": "logits"})
    deployed = trimaran.deploy(
        folder,
        store=tmp_path / "store",
        output=tmp_path / "repository",
        report=tmp_path / "report",
        candidates=("onnxruntime-fp32",),
        judging=judging_pairs(tmp_path / "judging.jsonl"),
        serve_check=False,
        quick=True,
        busy_ok=True,
        sequence=(1, 16, 32),
        batch=(1, 2, 4),
    )
    assert GRAPH_IS_REFERENCE in deployed.report.notes
    assert deployed.report.reference.backend == "onnxruntime"
    sentences = f"{deployed.report.verdict} {(tmp_path / 'report' / 'report.md').read_text()}"
    assert "eager PyTorch" not in sentences and "the given fp32 graph" in sentences
    found = trimaran.load(deployed.folder).classify(TEXTS)
    wanted = trimaran.load(exports("bert", "text-classification").directory).classify(TEXTS)
    assert [row["label"] for row in found] == [row["label"] for row in wanted]
