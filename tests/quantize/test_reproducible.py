"""The same recipe is the same graph, byte for byte, for every CPU precision; the halves and Q/DQ are held elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.quantize.tensorrt.engines import CALIBRATION, World
from trimaran.core.artifact import sha256_of
from trimaran.core.progress import SilentProgress
from trimaran.quantize.candidates import candidate
from trimaran.quantize.optimize import optimize
from trimaran.quantize.settings import MakerSettings


@pytest.mark.parametrize(
    "name",
    [
        "onnxruntime-int8-dynamic",
        "openvino-fp32",
        "openvino-int8-weights",
        "openvino-int8-dynamic",
        pytest.param("openvino-int8-static", marks=pytest.mark.slow),
    ],
)
def test_the_same_recipe_gives_the_same_graph(world: World, tmp_path: Path, name: str) -> None:
    row = candidate(name)
    parent = world.exported("bert")
    if row.fused:
        parent = optimize(parent, store=world.store, progress=SilentProgress())
    digests = []
    for turn in ("first", "second"):
        folder = tmp_path / turn
        folder.mkdir()
        row.maker(parent, folder, MakerSettings(calibration=CALIBRATION))
        digests.append({path.name: sha256_of(path) for path in folder.iterdir()})
    assert digests[0] == digests[1]
