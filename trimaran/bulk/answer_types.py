"""How each task's answers stand in a Parquet column: one type a task, the same in every part, empty parts included."""

from __future__ import annotations

from typing import Any

from trimaran.core.errors import UsageError


def answer_type(task: str) -> Any:
    types = _types()
    if task not in types:
        raise UsageError(f"{task} answers have no column type.", hint="Use --format jsonl.")
    return types[task]


def _types() -> dict[str, Any]:
    import pyarrow as pa

    def listed(**fields: Any) -> Any:
        return pa.list_(pa.struct(fields))

    number, text, place = pa.float32(), pa.string(), pa.int32()
    filling = pa.struct({"score": number, "token": place, "token_str": text, "sequence": text})
    return {
        "text-classification": listed(label=text, score=number),
        # `entity` and `index` belong to the aggregation `none`, `entity_group` to the others.
        "token-classification": listed(
            entity_group=text, entity=text, index=place, score=number, word=text, start=place, end=place
        ),
        "question-answering": listed(answer=text, score=number, start=place, end=place),
        "fill-mask": pa.list_(pa.list_(filling)),
        "rerank": listed(index=place, score=number),
        "sparse-embedding": listed(token=place, token_str=text, weight=number),
        "zero-shot-classification": pa.struct({"labels": pa.list_(text), "scores": pa.list_(number)}),
        "feature-extraction": pa.struct({"tokens": pa.list_(text), "token_embeddings": pa.list_(pa.list_(number))}),
    }
