"""What was committed of TensorRT's parser and builder."""

from __future__ import annotations

import json

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
