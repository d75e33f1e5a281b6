"""Late interaction: a query and a document are compared token by token, as ColBERT does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from trimaran.core.distances import unit

# What says of a model how its token vectors are compared: among its facts, and in its parameters on the server.
SIMILARITY = "similarity"


def maximum_similarities(
    query: npt.NDArray[Any], documents: Iterable[npt.NDArray[Any]], *, similarity: str = ""
) -> npt.NDArray[np.float32]:
    """The score of each document: each token of the query counts with its best cosine to a token of the document.

    Arrays are tokens x width. A query of n tokens has scores up to n. A late-interaction model names its `similarity`
    as sentence-transformers does: products of its vectors as they are, whose best are added up (`maxsim`) or whose mean
    is taken (`meanmaxsim`).
    """
    best = [_best(query, document, as_they_are=bool(similarity)) for document in documents]
    return np.asarray([row.mean() if similarity == "meanmaxsim" else row.sum() for row in best], np.float32)


# A query and a document of 8,192 tokens each have 67 million products: 0.5 GB at a time.
_TOKENS_A_BLOCK = 1024


def _best(query: npt.NDArray[Any], document: npt.NDArray[Any], *, as_they_are: bool) -> npt.NDArray[Any]:
    sides = [rows.astype(np.float64) if as_they_are else unit(rows) for rows in (query, document)]
    blocks = np.split(sides[1], range(_TOKENS_A_BLOCK, len(sides[1]), _TOKENS_A_BLOCK))
    return np.asarray(np.max([(sides[0] @ block.T).max(axis=1) for block in blocks], axis=0))
