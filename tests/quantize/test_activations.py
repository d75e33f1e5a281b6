from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx import helper

from tests.quantize.half.chains import chain
from tests.quantize.tensorrt.engines import CALIBRATION, World
from trimaran.core.errors import UsageError
from trimaran.quantize.activations import calibration_inputs, largest_magnitudes, sampled_rows, smoothing_divisor


def test_ranges_want_enough_texts_and_real_padding(world: World) -> None:
    artifact = world.exported("bert")
    with pytest.raises(UsageError, match="at least 16 texts, found 2"):
        calibration_inputs(artifact, CALIBRATION[:2], samples=8)
    padded = calibration_inputs(artifact, CALIBRATION, samples=20)[-1]["attention_mask"]
    assert padded.shape == (4, 48)
    assert not padded.all()


def watched() -> ir.Model:
    """x, then x + x, then its negative: two inner tensors of which neither is an output."""
    return chain(
        helper.make_node("Add", ["x", "x"], ["twice"]),
        helper.make_node("Neg", ["twice"], ["negative"]),
        helper.make_node("Relu", ["negative"], ["y"]),
    )


def test_inner_tensors_are_watched_and_the_graph_stays_as_it_was() -> None:
    model = watched()
    inputs = [{"x": np.array([[1, -2]], np.float32)}, {"x": np.array([[3, np.inf]], np.float32)}]
    assert largest_magnitudes(model, ["twice", "negative"], inputs, threads=1) == {"twice": 6.0, "negative": 6.0}
    assert [value.name for value in model.graph.outputs] == ["y"]


def test_samples_have_the_ranges_of_all_rows_and_halves_those_of_every_second_input() -> None:
    inputs = [{"x": np.array([[size, -size]], np.float32)} for size in (1, 2, 3, 4)]
    samples = sampled_rows(watched(), ["twice"], inputs, rows=4, threads=1)["twice"]
    assert (samples.low.tolist(), samples.high.tolist()) == ([2, -8], [8, -2])
    assert samples.peak.tolist() == [8, 8]
    assert samples.halved is not None
    assert samples.halved.rows.tolist() == [[4, -4], [8, -8]]
    assert (samples.halved.low.tolist(), samples.halved.high.tolist()) == ([2, -6], [6, -2])


def test_smoothing_changes_no_answer() -> None:
    generator = np.random.default_rng(0)
    rows, matrix = generator.standard_normal((5, 8)), generator.standard_normal((8, 3))
    divisor = smoothing_divisor(np.abs(rows).max(axis=0), np.abs(matrix).max(axis=1), 0.8)
    np.testing.assert_allclose((rows / divisor) @ (matrix * divisor[:, None]), rows @ matrix, atol=1e-5)
    assert np.exp(np.log(divisor).mean()) == pytest.approx(1.0, abs=1e-5)
