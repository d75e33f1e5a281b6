"""What was committed of TensorRT's parser and builder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.benchmarks.scripts import scripts_in
from trimaran.core.families import FAMILIES
from trimaran.export.families_page import TENSORRT_RESULT


def test_every_family_is_built_for_three_targets_or_says_why() -> None:
    result = json.loads(TENSORRT_RESULT.read_text(encoding="utf-8"))
    assert len(result["targets"]) >= 3
    assert set(result["families"]) == set(FAMILIES), "run benchmarks/tensorrt_families.py"
    for family, graphs in result["families"].items():
        for name in ("onnx-fp16", "onnx-int8-qdq"):
            row = graphs[name]
            assert row["reason"] or (row["built"] == result["targets"] and row["receipt"]), (family, name)


def test_the_page_shows_how_true_the_committed_graphs_are() -> None:
    folder = Path(__file__).parents[2] / "benchmarks"
    with scripts_in(folder, ("experiment", "tensorrt_fidelity")) as scripts:
        fidelity = scripts.tensorrt_fidelity
        if not fidelity.RESULT.is_file():
            pytest.skip("no whole run of tensorrt_fidelity.py is committed yet")
        page = fidelity.PAGE.read_text(encoding="utf-8")
        assert page == scripts.experiment.rendered(page, {"tensorrt-fidelity": fidelity.fidelity_table})
        result = json.loads(fidelity.RESULT.read_text(encoding="utf-8"))
        assert result["claims"] == fidelity.claims(result["rows"])
    graphs = {model: [row["graph"] for row in result["rows"] if row["model"] == model] for model in fidelity.MODELS}
    assert len(set(map(tuple, graphs.values()))) == 1 and len(graphs[fidelity.MINILM]) == 6, "both models, every graph"
