"""Rounds a matrix so that one weight's error is made good by those not yet rounded, as GPTQ does it.

What must come out right is the product with the activations *as they were rounded*, on real tokens; so the weights also
make good a part of what rounding the activations lost.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
# Added to the diagonal, as a share of its mean: trust in the few thousand tokens seen.
DAMPING = 0.2
_BLOCK = 64


def compensated_levels(matrix: Array, scales: Array, activations: Array, *, largest: int) -> Array:
    """Whole numbers for `matrix` (inputs x outputs), given its scale by output and rounded activations (tokens x
    inputs), each token weighted already.
    """
    gram = activations.T.astype(np.float64) @ activations
    diagonal = np.arange(len(gram))
    gram[diagonal, diagonal] += DAMPING * max(float(gram[diagonal, diagonal].mean()), 1e-12)
    # Inputs that matter most are rounded first, while most others can still answer for them.
    order = np.argsort(-gram[diagonal, diagonal], kind="stable")
    upper = np.linalg.cholesky(np.linalg.inv(gram[np.ix_(order, order)])).T
    left = matrix[order].astype(np.float64)
    levels = np.empty(left.shape, np.int8)
    for begin in range(0, len(left), _BLOCK):
        end = min(begin + _BLOCK, len(left))
        errors = np.empty((end - begin, left.shape[1]))
        for index in range(begin, end):
            rounded = np.clip(np.rint(left[index] / scales), -largest, largest)
            levels[order[index]] = rounded
            errors[index - begin] = (left[index] - rounded * scales) / upper[index, index]
            left[index:end] -= np.outer(upper[index, index:end], errors[index - begin])
        left[end:] -= upper[begin:end, end:].T @ errors
    return levels
