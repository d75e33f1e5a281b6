"""Documents by how well each fits a query."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..answers import Answering
from ..wire import TOP_K, Answer, Input, Output, ServedTask, indices_and_scores


def ranked(model: Answering, items: Sequence[tuple[str, Sequence[str]]], *, top_k: int | None = None) -> list[Answer]:
    """Documents of each query by score, best first; items are (query, documents)."""
    pairs = [(query, document) for query, documents in items for document in documents]
    scores = model.encoded(pairs)[1]["score"][:, 0] if pairs else np.zeros(0)
    answers, begin = [], 0
    for _, documents in items:
        own = scores[begin : begin + len(documents)]
        begin += len(documents)
        order = np.argsort(-own, kind="stable")[:top_k]
        answers.append([{"index": int(index), "score": float(own[index])} for index in order])
    return answers


SERVED = ServedTask(
    name="rerank",
    inputs=(Input("QUERY", brief=True), Input("DOCUMENTS", many=True)),
    outputs=(Output("INDICES", "TYPE_INT64", (-1,)), Output("SCORES", "TYPE_FP32", (-1,))),
    item=lambda row: (row["QUERY"], row["DOCUMENTS"]),
    answer=ranked,
    tensors=indices_and_scores,
    options=TOP_K,
)
