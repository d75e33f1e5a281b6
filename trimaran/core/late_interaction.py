"""Late interaction: a query and a document are compared token by token, as ColBERT does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from trimaran.core.distances import unit


def maximum_similarities(query: npt.NDArray[Any], documents: Iterable[npt.NDArray[Any]]) -> npt.NDArray[np.float32]:
    """The score of each document: each token of the query counts with its best cosine to a token of the document.

    Arrays are tokens x width. A query of n tokens has scores up to n.
    """
    tokens = unit(query)
    return np.asarray([(tokens @ unit(document).T).max(axis=1).sum() for document in documents], np.float32)
