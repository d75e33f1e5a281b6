"""The change that hardly any text exceeds: an order statistic of the judging texts, valid for texts like them.

A mean hides its tail: labels and the mean probability can keep their gates while one score in a hundred moves by 0.05.
The bound is the r-th largest change of the judging texts. It needs no assumption on how changes are distributed.
Example: with 400 texts the bound is the largest change, with 1,200 texts it is the 7th largest.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

# At most this share of texts exceeds the bound, with this confidence.
SHARE = 0.01
CONFIDENCE = 0.95


def tail_bound(changes: npt.NDArray[Any], alpha: float = 1 - CONFIDENCE) -> float:
    """The change that at most 1 % of texts exceed, with an error of at most `alpha`; infinite if one is not a number.

    Fewer than `fewest_texts()` cannot prove 1 %. The largest change is then returned, so that no text at all may exceed
    a limit; `proven_share` says what that proves. Without any text there is no change.
    """
    if not changes.size:
        return 0.0
    if np.isnan(changes).any():
        return float("inf")
    return float(np.sort(changes, axis=None)[-max(1, tail_rank(changes.size, alpha))])


@cache
def tail_rank(texts: int, alpha: float = 1 - CONFIDENCE) -> int:
    """Which of the largest changes is the bound: 1 is the largest, 0 means that there are too few texts."""
    from scipy.stats import binom

    return int((binom.cdf(np.arange(texts), texts, SHARE) <= alpha).sum())


def fewest_texts(alpha: float = 1 - CONFIDENCE) -> int:
    """How many texts can prove the bound at all: 299 at 95 %."""
    return int(np.ceil(np.log(alpha) / np.log(1 - SHARE)))


def proven_share(texts: int) -> float:
    """The share of texts that the bound of so many texts speaks for: 1 %, or more where there are too few."""
    return SHARE if tail_rank(texts) else float(1 - (1 - CONFIDENCE) ** (1 / texts))


def too_few_words(texts: int) -> str:
    """What so few texts prove, in words; empty where they are enough."""
    if tail_rank(texts):
        return ""
    return (
        f"the largest change of {texts} texts, which at most {100 * proven_share(texts):.2g} % of texts exceed with "
        f"{100 * CONFIDENCE:g} % confidence; {fewest_texts()} texts are needed for {100 * SHARE:g} %"
    )
