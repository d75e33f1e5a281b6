"""Whether entities and spans are the same as people get them: with labels and character offsets, by the server's code.

Runs of token labels would count what nobody is told (the "O" between entities), and miss what aggregation joins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from trimaran.core.artifact import Artifact
from trimaran.core.corpus import encoder_of
from trimaran.core.parity import Floats, Outputs
from trimaran.runtime.answers import Reader
from trimaran.runtime.entities import entities_of
from trimaran.runtime.spans import Window, best_spans
from trimaran.runtime.text import Text, softmax

Place = tuple[str, int, int]
_LONGEST_SPAN = 15
# Pairs that judge have the question first.
_CONTEXT = 1


def answer_agreement(
    artifact: Artifact, texts: Sequence[Text], reference: Outputs, candidate: Outputs
) -> dict[str, float]:
    """The metric of the task's final answers, for the tasks whose answers are places in a text; else none."""
    if artifact.task not in _AGREEMENTS:
        return {}
    metric, answers, compare = _AGREEMENTS[artifact.task]
    return {metric: compare(answers(artifact, texts, reference), answers(artifact, texts, candidate))}


def _entities(artifact: Artifact, texts: Sequence[Text], outputs: Outputs) -> list[set[Place]]:
    reader, encodings = Reader(str(artifact.directory / "tokenizer.json")), encoder_of(artifact).encodings(texts)
    found = []
    for text, encoding, logits in zip(texts, encodings, outputs["token_logits"], strict=True):
        whole = text if isinstance(text, str) else text[0]
        scores = softmax(_own(logits, encoding))
        entities = entities_of(whole, encoding, scores, artifact.labels, reader, "simple", ("O",))
        found.append({(str(entity["entity_group"]), int(entity["start"]), int(entity["end"])) for entity in entities})
    return found


def _spans(artifact: Artifact, texts: Sequence[Text], outputs: Outputs) -> list[set[Place]]:
    found = []
    for index, (text, encoding) in enumerate(zip(texts, encoder_of(artifact).encodings(texts), strict=True)):
        start, end = (_own(outputs[name][index], encoding) for name in ("start_logits", "end_logits"))
        window = Window(encoding, start, end, context_id=_CONTEXT)
        spans = best_spans(text[_CONTEXT], [window], top_k=1, longest=_LONGEST_SPAN, no_answer=False)
        found.append({("", int(span["start"]), int(span["end"])) for span in spans})
    return found


def _own(rows: Floats, encoding: Any) -> Floats:
    """Without what a longer text in the same array has."""
    return rows[: len(encoding.ids)]


def _found_by_both(wanted: Sequence[set[Place]], found: Sequence[set[Place]]) -> float:
    """F1; nothing found by either is agreement."""
    same = sum(len(a & b) for a, b in zip(wanted, found, strict=True))
    total = sum(len(a) + len(b) for a, b in zip(wanted, found, strict=True))
    return 2 * same / total if total else 1.0


def _alike(wanted: Sequence[set[Place]], found: Sequence[set[Place]]) -> float:
    return float(np.mean([a == b for a, b in zip(wanted, found, strict=True)]))


_Answers = Callable[[Artifact, Sequence[Text], Outputs], list[set[Place]]]
_Compare = Callable[[Sequence[set[Place]], Sequence[set[Place]]], float]
_AGREEMENTS: Mapping[str, tuple[str, _Answers, _Compare]] = {
    "token-classification": ("entity_agreement", _entities, _found_by_both),
    "question-answering": ("span_agreement", _spans, _alike),
}
