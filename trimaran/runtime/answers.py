"""From an engine's numbers to what a person asked for: labels, entities, spans, words, ranked documents.

It travels with a deployed model beside `text.py`, and needs nothing but numpy and tokenizers.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .entities import entities_of, merged_windows
from .spans import Window, best_spans
from .text import SEQUENCE_AXES, STRETCH, Array, Infer, InferMany, Row, Text, TextEncoder, infer_rows, softmax

Answer = Any
STRIDE = 128


class Reader:
    """The way back from token ids to text, by the model's own tokenizer; few tasks need it, so it is opened late."""

    def __init__(self, tokenizer_file: str) -> None:
        self._file = tokenizer_file

    @functools.cached_property
    def _tokenizer(self) -> Any:
        from tokenizers import Tokenizer

        return Tokenizer.from_file(self._file)

    @functools.cached_property
    def _model(self) -> dict[str, Any]:
        return dict(json.loads(Path(self._file).read_text(encoding="utf-8"))["model"])

    @property
    def unknown_id(self) -> int | None:
        """A unigram model states its unknown token by number."""
        unknown = self._model.get("unk_token")
        found = self._model.get("unk_id") if unknown is None else self._tokenizer.token_to_id(unknown)
        return None if found is None else int(found)

    @property
    def marks_words(self) -> bool:
        """Only such a tokenizer marks which tokens continue a word."""
        return bool(self._model.get("continuing_subword_prefix"))

    def token(self, index: int) -> str:
        return str(self._tokenizer.id_to_token(index))

    def joined(self, tokens: Sequence[str]) -> str:
        decoder = self._tokenizer.decoder
        return str(decoder.decode(list(tokens))) if decoder else " ".join(tokens)

    def text(self, ids: Sequence[int], *, skip_special: bool = False) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=skip_special))


@dataclass(frozen=True)
class Answering:
    """An engine with all that stands around it. `facts` are the artifact's `details["answers"]`."""

    infer: Infer
    encoder: TextEncoder
    reader: Reader
    labels: Sequence[str] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    policy: str = "alone"
    maximum_batch: int = 1
    stretch: float = STRETCH
    infer_many: InferMany | None = None

    def outputs(self, rows: Sequence[Row]) -> dict[str, Array]:
        return infer_rows(
            self.infer,
            self.encoder,
            rows,
            policy=self.policy,
            maximum_batch=self.maximum_batch,
            stretch=self.stretch,
            infer_many=self.infer_many,
        )

    def encoded(self, texts: Sequence[Text], *, prompt: str | None = None) -> tuple[list[Any], dict[str, Array]]:
        encodings = self.encoder.encodings(texts, prompt=prompt)
        return encodings, self.outputs([Row(found.ids, found.type_ids) for found in encodings])


def embeddings(served: Answering, texts: Sequence[Text], *, prompt: str | None = None) -> list[Answer]:
    """`prompt` names one of the model's prompts; by default its default one, if it has one."""
    return list(served.encoded(texts, prompt=prompt)[1]["embedding"])


def token_features(served: Answering, texts: Sequence[Text]) -> list[Answer]:
    """The tokens of each text with their vectors, and with hidden states and attentions where the graph gives them."""
    encodings, outputs = served.encoded(texts)
    # By number: a unigram tokenizer's own tokens show the text where the model saw an unknown one.
    found: list[Answer] = [{"tokens": [served.reader.token(index) for index in row.ids]} for row in encodings]
    for name, array in outputs.items():
        axes = SEQUENCE_AXES[name]
        for answer, row in zip(found, array, strict=True):
            size = len(answer["tokens"])
            answer[name] = row[tuple(slice(size if axis in axes else None) for axis in range(1, array.ndim))]
    return found


def classes(served: Answering, texts: Sequence[Text], *, top_k: int | None = None) -> list[Answer]:
    """Labels and scores, best first. The output's name says whether its numbers still want a softmax."""
    outputs = served.encoded(texts)[1]
    scores = softmax(outputs["logits"]) if "logits" in outputs else next(iter(outputs.values()))
    order = np.argsort(-scores, axis=-1, kind="stable")[:, :top_k]
    return [
        [{"label": served.labels[index], "score": float(row[index])} for index in best]
        for row, best in zip(scores, order, strict=True)
    ]


def entities(
    served: Answering,
    texts: Sequence[str],
    *,
    aggregation: str = "simple",
    ignore: Sequence[str] = ("O",),
    stride: int | None = None,
) -> list[Answer]:
    """Entities with character offsets. With `stride`, a text too long for the model is read in overlapping pieces."""
    pieces = [served.encoder.pieces(text, stride=stride) for text in texts]
    flat = [piece for found in pieces for piece in found]
    logits = served.outputs([Row(piece.ids, piece.type_ids) for piece in flat]).get("token_logits", ())
    results, begin = [], 0
    for text, found in zip(texts, pieces, strict=True):
        parts = [
            entities_of(text, piece, softmax(rows[: len(piece.ids)]), served.labels, served.reader, aggregation, ignore)
            for piece, rows in zip(found, logits[begin : begin + len(found)], strict=True)
        ]
        begin += len(found)
        joined = [entity for part in parts for entity in part]
        results.append(merged_windows(joined) if len(found) > 1 else joined)
    return results


def answers(
    served: Answering,
    texts: Sequence[tuple[str, str]],
    *,
    top_k: int = 1,
    longest: int = 15,
    stride: int = STRIDE,
    no_answer: bool = False,
) -> list[Answer]:
    """The best spans of each context for its question; texts are (question, context)."""
    results = []
    for question, context in texts:
        windows = served.encoder.windows(question, context, stride=stride)
        outputs = served.outputs([Row(found.ids, found.type_ids) for found in windows])
        parts = [
            Window(found, start[: len(found.ids)], end[: len(found.ids)], context_id=served.encoder.context_id)
            for found, start, end in zip(windows, outputs["start_logits"], outputs["end_logits"], strict=True)
        ]
        results.append(best_spans(context, parts, top_k=top_k, longest=longest, no_answer=no_answer))
    return results


def fillings(served: Answering, texts: Sequence[str], *, top_k: int = 5) -> list[Answer]:
    """For each mask of each text, the most probable tokens; a text without a mask has none."""
    encodings, outputs = served.encoded(texts)
    results = []
    for found, scores, ids in zip(encodings, outputs["token_scores"], outputs["token_ids"], strict=True):
        places = [place for place, index in enumerate(found.ids) if index == served.facts["mask_id"]]
        rows = []
        for place in places:
            row = []
            for score, index in zip(scores[place][:top_k], ids[place][:top_k], strict=True):
                filled = [*found.ids[:place], int(index), *found.ids[place + 1 :]]
                row.append(
                    {
                        "score": float(score),
                        "token": int(index),
                        "token_str": served.reader.text([int(index)]),
                        "sequence": served.reader.text(filled, skip_special=len(places) == 1),
                    }
                )
            rows.append(row)
        results.append(rows)
    return results


def ranked(served: Answering, texts: Sequence[tuple[str, Sequence[str]]], *, top_k: int | None = None) -> list[Answer]:
    """Documents of each query by score, best first; texts are (query, documents)."""
    pairs = [(query, document) for query, documents in texts for document in documents]
    scores = served.encoded(pairs)[1]["score"][:, 0] if pairs else np.zeros(0)
    results, begin = [], 0
    for _, documents in texts:
        mine = scores[begin : begin + len(documents)]
        begin += len(documents)
        order = np.argsort(-mine, kind="stable")[:top_k]
        results.append([{"index": int(index), "score": float(mine[index])} for index in order])
    return results


def sparse_vectors(
    served: Answering, texts: Sequence[str], *, top_k: int | None = None, prompt: str | None = None
) -> list[Answer]:
    """Tokens with a positive weight, heaviest first."""
    results = []
    for weights in served.encoded(texts, prompt=prompt)[1]["weights"]:
        order = np.argsort(-weights, kind="stable")[: int((weights > 0).sum())][:top_k]
        results.append(
            [{"token": int(i), "token_str": served.reader.token(int(i)), "weight": float(weights[i])} for i in order]
        )
    return results


def zero_shot(
    served: Answering,
    texts: Sequence[str],
    *,
    labels: Sequence[str],
    template: str = "This example is {}.",
    multi_label: bool = False,
) -> list[Answer]:
    """Labels named by the caller, each tried as a hypothesis; scores are of entailment."""
    if not labels or template.format(labels[0]) == template:
        raise ValueError("Zero-shot wants labels, and a template with {} where a label goes.")
    hypotheses = [template.format(label) for label in labels]
    rows = [row for text in texts for row in served.encoder.premise_rows(text, hypotheses)]
    logits = served.outputs(rows)["logits"].astype(np.float64).reshape(len(texts), len(labels), -1)
    entailment = logits[..., served.facts["entailment"]]
    if multi_label or len(labels) == 1:
        scores = softmax(np.stack([logits[..., served.facts["contradiction"]], entailment], axis=-1))[..., 1]
    else:
        scores = softmax(entailment)
    orders = np.argsort(-scores, axis=-1, kind="stable")
    return [
        {"labels": [labels[index] for index in order], "scores": [float(row[index]) for index in order]}
        for row, order in zip(scores, orders, strict=True)
    ]


ANSWERS: dict[str, Callable[..., list[Answer]]] = {
    "embedding": embeddings,
    "feature-extraction": token_features,
    "text-classification": classes,
    "token-classification": entities,
    "question-answering": answers,
    "fill-mask": fillings,
    "rerank": ranked,
    "sparse-embedding": sparse_vectors,
    "zero-shot-classification": zero_shot,
}
