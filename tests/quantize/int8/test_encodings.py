from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from trimaran.quantize.activations import Samples
from trimaran.quantize.int8.encodings import LEVELS, choose_encoding, copies_of, widened_ranges
from trimaran.quantize.linear_layers import LinearLayer, LinearProduct

GENERATOR = np.random.default_rng(9)
PRODUCT = LinearProduct("p", "w", None)


def layer_of(*, hidden: bool) -> LinearLayer:
    return LinearLayer("l", ("x",), ("w",), (PRODUCT,), hidden=(PRODUCT,) if hidden else (), inputs=24, outputs=8)


def samples_of(rows: np.ndarray) -> dict[str, Samples]:
    return {"x": Samples(rows, rows.min(0), rows.max(0), Samples(rows[1::2], rows.min(0), rows.max(0)))}


def lost_by(encoding: object, rows: np.ndarray, matrix: np.ndarray) -> float:
    found: object = encoding
    values = np.clip(np.rint((rows[:, found.channels] * found.factors + found.offsets) / found.step), 0, LEVELS)  # type: ignore[attr-defined]
    result = (values * found.step) @ (found.weights * found.scales) + found.correction  # type: ignore[attr-defined]
    return float(np.square(result - rows @ matrix).mean() / np.square(rows @ matrix).mean())


@pytest.mark.parametrize("count", [2, 3, 8])
def test_copies_a_part_of_a_step_apart_round_as_one_finer_channel(count: int) -> None:
    """Hermite's identity: n roundings of v, offset by n-ths of a step, add up to one rounding of n·v."""
    values = GENERATOR.uniform(1, 200, 1000)
    phases = (np.arange(count) - (count - 1) / 2) / count
    together = np.rint(values[:, None] + phases).sum(axis=1)
    shift = 0.5 if count % 2 == 0 else 0.0
    assert np.abs(together - (np.rint(count * values + shift) - shift)).max() <= 0.5 + 1e-9


def test_channels_that_weigh_most_get_the_copies() -> None:
    assert list(copies_of(np.array([1.0, 100.0, 1.0]), 3)) == [1, 4, 1]


def test_an_outlier_channel_is_made_good_by_copies() -> None:
    rows = GENERATOR.standard_normal((400, 24)).astype(np.float32)
    rows[:, 3] *= 200
    matrix = GENERATOR.standard_normal((24, 8)).astype(np.float32)
    matrix[3] *= 0.05
    plain = choose_encoding(layer_of(hidden=False), matrix, samples_of(rows))
    wide = choose_encoding(layer_of(hidden=True), matrix, samples_of(rows))
    assert plain.copies == 0 and wide.copies > 0
    assert wide.lost < plain.lost / 2
    assert lost_by(wide, rows, matrix) < lost_by(plain, rows, matrix) / 2


def test_narrow_channels_reach_as_far_as_most_others_and_no_wider() -> None:
    low, high = np.full(30, -2.0), np.full(30, 2.0)
    low[:3], high[:3] = [-0.5, 27.0, -9.0], [0.8, 29.0, 1.0]
    lows, highs = widened_ranges(low, high)
    assert (lows[:4].tolist(), highs[:4].tolist()) == ([-2.0, 25.0, -9.0, -2.0], [2.0, 29.0, 1.0, 2.0])


def test_a_channel_that_calibration_hardly_heard_is_not_clipped() -> None:
    rows = GENERATOR.standard_normal((400, 24)).astype(np.float32)
    loud = rows[:50].copy()
    rows[:, 5] *= 0.02
    matrix = GENERATOR.standard_normal((24, 8)).astype(np.float32)
    assert lost_by(choose_encoding(layer_of(hidden=False), matrix, samples_of(rows)), loud, matrix) < 5e-3


def test_offsets_and_mean_error_are_undone_by_the_correction() -> None:
    rows = (GENERATOR.standard_normal((400, 24)) + 7).astype(np.float32)
    matrix = GENERATOR.standard_normal((24, 8)).astype(np.float32)
    found = choose_encoding(layer_of(hidden=False), matrix, samples_of(rows))
    assert lost_by(found, rows, matrix) < 1e-3
    assert found.weights.dtype == np.int8


def test_weights_never_pass_the_largest_that_the_cpu_multiplies_exactly() -> None:
    rows = GENERATOR.standard_normal((200, 24)).astype(np.float32)
    matrix = GENERATOR.standard_normal((24, 8)).astype(np.float32)
    found = choose_encoding(layer_of(hidden=False), matrix, samples_of(rows), weight_levels=63)
    assert np.abs(found.weights).max() <= 63


def test_without_zero_points_all_numbers_are_those_of_fp16_and_levels_lie_around_zero() -> None:
    rows = (GENERATOR.standard_normal((400, 24)) + 7).astype(np.float32)
    rows[:, 3] += 20
    matrix = GENERATOR.standard_normal((24, 8)).astype(np.float32)
    found = choose_encoding(layer_of(hidden=False), matrix, samples_of(rows), signed=True)
    assert found.options.anchor == "middle"
    values = np.rint((rows[:, found.channels] * found.factors + found.offsets) / np.float32(found.step))
    assert np.abs(values).mean() < 64, "as many below zero as above"
    result = (np.clip(values, -127, 127) * found.step) @ (found.weights * found.scales) + found.correction
    assert np.square(result - rows @ matrix).mean() / np.square(rows @ matrix).mean() < 1e-3
    for numbers in (found.factors, np.float32(found.step), found.scales):
        np.testing.assert_array_equal(np.asarray(numbers, np.float16).astype(np.float32), numbers)
    shifts = (found.offsets / found.factors).astype(np.float32)
    np.testing.assert_allclose(np.asarray(shifts, np.float16).astype(np.float32), shifts, rtol=1e-6)


def test_an_attentions_result_that_v_cannot_prepare_is_rounded_as_it_is() -> None:
    """A division between the product with V and Q would split TensorRT's fused kernel."""
    rows = GENERATOR.standard_normal((200, 24)).astype(np.float32)
    matrix = GENERATOR.standard_normal((24, 8)).astype(np.float32)
    attended = replace(layer_of(hidden=False), attended=True)
    assert choose_encoding(attended, matrix, samples_of(rows), signed=True).is_plain
    assert not choose_encoding(attended, matrix, samples_of(rows)).is_plain
