"""What was committed of TensorRT's parser and builder, and of its graphs' fidelity."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.benchmarks.scripts import scripts_in
from trimaran.export.families_page import TENSORRT_RESULT

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def fidelity() -> Iterator[SimpleNamespace]:
    with scripts_in(FOLDER, ("experiment", "tensorrt_fidelity")) as scripts:
        yield scripts.tensorrt_fidelity


def test_the_page_shows_the_committed_fidelity(fidelity: SimpleNamespace) -> None:
    shown = fidelity.PAGE.read_text(encoding="utf-8")
    assert shown == fidelity.page(), "run `python benchmarks/tensorrt_fidelity.py --page-only`"


def test_int8_keeps_strict_and_every_peer_graph_has_a_number_or_a_reason(fidelity: SimpleNamespace) -> None:
    result = fidelity.committed()
    for name, model in result["models"].items():
        rows = {row["graph"]: row for row in model["graphs"]}
        assert rows["onnx-int8-qdq"]["holds"], name
        for kind in fidelity.PEERS:
            row = rows[f"modelopt {kind}"]
            assert row.get("metrics") or row["reason"], row


def test_every_family_that_was_tried_is_built_for_three_targets_or_says_why() -> None:
    result = json.loads(TENSORRT_RESULT.read_text(encoding="utf-8"))
    assert len(result["targets"]) >= 3
    for family, graphs in result["families"].items():
        for name in ("onnx-fp16", "onnx-int8-qdq"):
            row = graphs[name]
            assert row["reason"] or (row["built"] == result["targets"] and row["receipt"]), (family, name)
