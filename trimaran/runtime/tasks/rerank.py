"""Documents by how well each fits a query."""

from __future__ import annotations

from collections.abc import Sequence

from ..answers import Answering
from ..wire import INSTRUCTION, PROMPT, TOP_K, Answer, Input, Output, ServedTask, best_first, indexed_columns


def ranked(
    model: Answering,
    items: Sequence[tuple[str, Sequence[str]]],
    *,
    top_k: int | None = None,
    prompt: str | None = None,
    instruction: str | None = None,
) -> list[Answer]:
    """Documents of each query by score, best first; items are (query, documents).

    `prompt` names one of the model's prompts, `instruction` takes their place with words of the caller's own.
    """
    return [best_first(scores, top_k) for scores in model.pair_scores(items, prompt=prompt, instruction=instruction)]


SERVED = ServedTask(
    name="rerank",
    inputs=(Input("QUERY", brief=True), Input("DOCUMENTS", many=True)),
    outputs=(Output("INDICES", "TYPE_INT64", (-1,)), Output("SCORES", "TYPE_FP32", (-1,))),
    item=lambda row: (row["QUERY"], row["DOCUMENTS"]),
    answer=ranked,
    tensors=indexed_columns("INDICES", "SCORES"),
    options={**TOP_K, PROMPT: str, INSTRUCTION: str},
    encoded_rows=lambda item, keywords: len(item[1]),
)
