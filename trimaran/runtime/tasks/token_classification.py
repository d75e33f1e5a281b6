"""Entities of a text with character offsets, grouped as `transformers` pipelines group them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..answers import Answering, Reader
from ..text import Array, Row, softmax
from ..wire import TEXT, Answer, Output, ServedTask, json_column, single_text

FoundEntity = dict[str, Any]
AGGREGATIONS = ("none", "simple", "first", "average", "max")


def entities(
    model: Answering,
    texts: Sequence[str],
    *,
    aggregation: str = "simple",
    ignore: Sequence[str] = ("O",),
    stride: int | None = None,
) -> list[Answer]:
    """Entities of each text. With `stride`, a text too long for the model is read in overlapping pieces."""
    pieces = [model.encoder.pieces(text, stride=stride) for text in texts]
    rows = [Row(piece.ids, piece.type_ids) for own in pieces for piece in own]
    logits = model.outputs(rows).get("token_logits", ())
    answers, begin = [], 0
    for text, own in zip(texts, pieces, strict=True):
        by_piece = [
            entities_of(text, piece, softmax(scores[: len(piece.ids)]), model.labels, model.reader, aggregation, ignore)
            for piece, scores in zip(own, logits[begin : begin + len(own)], strict=True)
        ]
        begin += len(own)
        joined = [entity for part in by_piece for entity in part]
        answers.append(merged_windows(joined) if len(own) > 1 else joined)
    return answers


def entities_of(
    text: str,
    encoding: Any,
    scores: Array,
    labels: Sequence[str],
    reader: Reader,
    aggregation: str,
    ignore: Sequence[str],
) -> list[FoundEntity]:
    """`scores` are the label probabilities of each token of `encoding`."""
    if aggregation not in AGGREGATIONS:
        raise ValueError(f"Unknown aggregation {aggregation!r}. Known: {', '.join(AGGREGATIONS)}.")
    tokens = [_token(text, encoding, position, scores[position], reader) for position in range(len(encoding.ids))]
    tokens = [token for token in tokens if not token.pop("special")]
    if aggregation in ("none", "simple"):
        parts = [_labelled(token, token.pop("scores"), labels) for token in tokens]
        for entity in parts:
            del entity["continues"]
    else:
        parts = [_word(group, labels, reader, _CHOICES[aggregation]) for group in _words(tokens)]
    if aggregation == "none":
        return [entity for entity in parts if entity["entity"] not in ignore]
    return [group for group in _grouped(parts, reader) if group["entity_group"] not in ignore]


def merged_windows(entities: Sequence[FoundEntity]) -> list[FoundEntity]:
    """Of entities that overlap because two windows saw them, the longer one, or of equals the surer."""
    kept: list[FoundEntity] = []
    for entity in sorted(entities, key=lambda entity: int(entity["start"])):
        if not kept or not kept[-1]["start"] <= entity["start"] < kept[-1]["end"]:
            kept.append(entity)
        elif _strength(entity) > _strength(kept[-1]):
            kept[-1] = entity
    return kept


def _strength(entity: FoundEntity) -> tuple[int, float]:
    return entity["end"] - entity["start"], entity["score"]


def _token(text: str, encoding: Any, position: int, scores: Array, reader: Reader) -> FoundEntity:
    index, (start, end) = encoding.ids[position], encoding.offsets[position]
    word, surface = reader.token(index), text[start:end]
    glued = start > 0 and " " not in text[start - 1 : start + 1]
    continues = len(word) != len(surface) if reader.marks_words else glued
    if index == reader.unknown_id:
        word, continues = surface, False
    return {
        "scores": scores,
        "word": word,
        "start": start,
        "end": end,
        "index": position,
        "continues": continues,
        "special": bool(encoding.special_tokens_mask[position]),
    }


def _labelled(facts: FoundEntity, scores: Array, labels: Sequence[str]) -> FoundEntity:
    best = int(scores.argmax())
    return {**facts, "entity": labels[best], "score": float(scores[best])}


def _words(tokens: Sequence[FoundEntity]) -> list[list[FoundEntity]]:
    groups: list[list[FoundEntity]] = []
    for token in tokens:
        if groups and token["continues"]:
            groups[-1].append(token)
        else:
            groups.append([token])
    return groups


_CHOICES: dict[str, Callable[[Sequence[Array]], Array]] = {
    "first": lambda rows: rows[0],
    "max": lambda rows: max(rows, key=lambda row: float(row.max())),
    "average": lambda rows: np.asarray(np.nanmean(np.stack(rows), axis=0)),
}


def _word(
    group: Sequence[FoundEntity], labels: Sequence[str], reader: Reader, choose: Callable[[Sequence[Array]], Array]
) -> FoundEntity:
    facts = {
        "word": reader.joined([token["word"] for token in group]),
        "start": group[0]["start"],
        "end": group[-1]["end"],
    }
    return _labelled(facts, choose([token["scores"] for token in group]), labels)


def _grouped(entities: Sequence[FoundEntity], reader: Reader) -> list[FoundEntity]:
    """Neighbours with one tag belong together, unless the later one begins anew (B-)."""
    groups: list[list[FoundEntity]] = []
    for entity in entities:
        begins, tag = _tag(entity["entity"])
        if groups and not begins and _tag(groups[-1][-1]["entity"])[1] == tag:
            groups[-1].append(entity)
        else:
            groups.append([entity])
    return [
        {
            "entity_group": group[0]["entity"].split("-", 1)[-1],
            "score": float(np.mean([entity["score"] for entity in group])),
            "word": reader.joined([entity["word"] for entity in group]),
            "start": group[0]["start"],
            "end": group[-1]["end"],
        }
        for group in groups
    ]


def _tag(label: str) -> tuple[bool, str]:
    return label.startswith("B-"), label[2:] if label.startswith(("B-", "I-")) else label


SERVED = ServedTask(
    name="token-classification",
    inputs=(TEXT,),
    outputs=(Output("ENTITIES", "TYPE_STRING"),),
    item=single_text,
    answer=entities,
    tensors=json_column("ENTITIES"),
    options={"aggregation": str, "ignore": list, "stride": int},
)
