from __future__ import annotations

import numpy as np

from trimaran.quantize.int8.weight_rounding import compensated_levels, root_of_inverse

GENERATOR = np.random.default_rng(9)


def test_compensated_rounding_loses_less_than_rounding_each_weight_alone() -> None:
    activations = (GENERATOR.standard_normal((800, 24)) @ GENERATOR.standard_normal((24, 24))).astype(np.float32)
    matrix = GENERATOR.standard_normal((24, 8)).astype(np.float32)
    scales = np.abs(matrix).max(0) / 15
    plain = np.rint(matrix / scales) * scales
    levels = compensated_levels(matrix, scales, activations, largest=15)
    lost = [float(np.square(activations @ (found - matrix)).mean()) for found in (plain, levels * scales)]
    assert lost[1] < 0.7 * lost[0]
    assert np.abs(levels).max() <= 15


def test_the_triangle_is_that_of_the_whole_inverse() -> None:
    tokens = GENERATOR.standard_normal((60, 24))
    gram = tokens.T @ tokens
    wanted = np.linalg.cholesky(np.linalg.inv(gram)).T
    np.testing.assert_allclose(root_of_inverse(gram), wanted, atol=1e-12)
