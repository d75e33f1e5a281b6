"""Three outputs of one pass, as bge-m3 gives them: a vector, weights of the text's own tokens, and a vector a token.

The weight of a token is the largest of all places where it stands. The first token has no vector of its own, because
the whole text's vector is made of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..answers import Answering
from ..text import Array
from ..wire import FIRST, PROMPT, TEXT, TOP_K, Answer, Output, ServedTask, Tensors, filled, single_text, strings

# The option that names what is asked for, and what it may name.
OUTPUTS = "outputs"
DENSE, SPARSE, COLBERT = KINDS = ("dense", "sparse", "colbert")
# Of the model's facts: special tokens, which have no weight in an answer.
UNWEIGHTED = "unweighted_ids"


def hybrid_vectors(
    model: Answering,
    texts: Sequence[str],
    *,
    outputs: Sequence[str] | None = None,
    top_k: int | None = None,
    prompt: str | None = None,
) -> list[Answer]:
    """For each text a dictionary of what is asked for, all three by default. `top_k` bounds the weighted tokens."""
    kinds = wanted_kinds(outputs)
    encodings, arrays = model.encoded(texts, prompt=prompt)
    answers: list[Answer] = []
    for index, encoding in enumerate(encodings):
        ids = encoding.ids
        answer: dict[str, Any] = {}
        if DENSE in kinds:
            answer[DENSE] = arrays["embedding"][index]
        if SPARSE in kinds:
            weights = weights_by_token(ids, arrays["token_weights"][index], model.facts.get(UNWEIGHTED, ()))
            heaviest = sorted(weights.items(), key=lambda entry: (-entry[1], entry[0]))[:top_k]
            answer[SPARSE] = [
                {"token": token, "token_str": model.reader.token(token), "weight": weight} for token, weight in heaviest
            ]
        if COLBERT in kinds:
            answer[COLBERT] = {
                "tokens": [model.reader.token(token) for token in ids[1:]],
                "token_embeddings": arrays["token_embeddings"][index][1 : len(ids)],
            }
        answers.append(answer)
    return answers


def wanted_kinds(outputs: Sequence[str] | None) -> tuple[str, ...]:
    """What is asked for, in the order of `KINDS`. Raises ValueError."""
    if outputs is None:
        return KINDS
    unknown = [name for name in outputs if name not in KINDS]
    if unknown or not outputs:
        raise ValueError(
            f"{OUTPUTS} wants some of {', '.join(KINDS)}, found {unknown[0][:40] if unknown else 'nothing'}."
        )
    return tuple(kind for kind in KINDS if kind in outputs)


def weights_by_token(ids: Sequence[int], weights: Array, unweighted: Iterable[int]) -> dict[int, float]:
    """Tokens with a positive weight, each with its largest one."""
    skipped = set(unweighted)
    heaviest: dict[int, float] = {}
    for token, weight in zip(ids, weights[: len(ids)].tolist(), strict=True):
        if token not in skipped and weight > heaviest.get(token, 0.0):
            heaviest[token] = weight
    return heaviest


def tensors(answers: Sequence[Answer]) -> Tensors:
    """The tensors of what at least one row asked for. Other rows have zeros there, no tokens and the length 0."""
    columns: Tensors = {}
    if any(DENSE in answer for answer in answers):
        width = next(len(answer[DENSE]) for answer in answers if DENSE in answer)
        rows = [answer.get(DENSE, np.zeros(width)) for answer in answers]
        columns["EMBEDDING"] = np.stack(rows).astype(np.float32, copy=False)
    if any(SPARSE in answer for answer in answers):
        sparse = [answer.get(SPARSE, []) for answer in answers]
        columns["TOKEN_IDS"] = filled([[entry["token"] for entry in row] for row in sparse], -1, np.int64)
        columns["TOKENS"] = filled([strings([entry["token_str"] for entry in row]) for row in sparse], b"", np.object_)
        columns["WEIGHTS"] = filled([[entry["weight"] for entry in row] for row in sparse], 0, np.float32)
    if any(COLBERT in answer for answer in answers):
        none = {"tokens": [], "token_embeddings": np.zeros((0, 0), np.float32)}
        vectors = [answer.get(COLBERT, none) for answer in answers]
        columns["TOKEN_EMBEDDINGS"] = filled([row["token_embeddings"] for row in vectors], 0, np.float32)
        columns["VECTOR_TOKENS"] = filled([strings(row["tokens"]) for row in vectors], b"", np.object_)
        columns["LENGTH"] = np.asarray([[len(row["tokens"])] for row in vectors], np.int32)
    return columns


SERVED = ServedTask(
    name="hybrid-embedding",
    inputs=(TEXT,),
    outputs=(
        Output("EMBEDDING", "TYPE_FP32", FIRST),
        Output("TOKEN_IDS", "TYPE_INT64", (-1,)),
        Output("TOKENS", "TYPE_STRING", (-1,)),
        Output("WEIGHTS", "TYPE_FP32", (-1,)),
        Output("TOKEN_EMBEDDINGS", "TYPE_FP32", "token_embeddings"),
        Output("VECTOR_TOKENS", "TYPE_STRING", (-1,)),
        Output("LENGTH", "TYPE_INT32"),
    ),
    item=single_text,
    answer=hybrid_vectors,
    tensors=tensors,
    options={OUTPUTS: list, **TOP_K, PROMPT: str},
)
