"""Question answering: the best spans of a context, with scores and character offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trimaran.core.distances import Answers, Column, Floats, Outputs, by_token, largest_differences
from trimaran.core.metrics import Metric
from trimaran.core.tasks.library import Library, Plain
from trimaran.core.tasks.shared import relative_change
from trimaran.core.tasks.task import (
    FLOAT_NOISE,
    AnswerContext,
    DataMetric,
    Gate,
    Head,
    Loss,
    RequestRow,
    Task,
    WireTensors,
    first_text,
    levels,
    own_tokens,
    parsed_rows,
    second_text,
    tensor,
)
from trimaran.runtime.tasks.question_answering import LONGEST, STRIDE, Window, best_spans
from trimaran.runtime.text import Text, softmax

# Pairs that judge have the question first and the context second.
_CONTEXT = 1
_LOGITS = ("start_logits", "end_logits")


def _judged(context: AnswerContext, texts: Sequence[Text], outputs: Outputs) -> Answers:
    spans = []
    for index, (text, encoding) in enumerate(zip(texts, context.encoder.encodings(texts), strict=True)):
        start, end = (own_tokens(encoding, outputs[name][index]) for name in _LOGITS)
        window = Window(encoding, start, end, context_id=_CONTEXT)
        best = best_spans(text[_CONTEXT], [window], top_k=1, longest=LONGEST, no_answer=False)
        spans.append(best[0] if best else None)
    return {**outputs, "spans": spans}


def _from_wire(numbers: str, tensors: WireTensors, other: WireTensors) -> Answers:
    return {"spans": [row[0] if row else None for row in parsed_rows(tensors["ANSWERS"])]}


def _same_span(reference: Answers, candidate: Answers) -> Column:
    edges = [
        [(span["start"], span["end"]) if span else None for span in side["spans"]] for side in (reference, candidate)
    ]
    return np.asarray([before == after for before, after in zip(*edges, strict=True)], np.float64)


def _largest(reference: Answers, candidate: Answers) -> Column:
    """By the graph's numbers where both sides have them, else by the scores of the best spans."""
    if _LOGITS[0] in reference and _LOGITS[0] in candidate:
        return largest_differences({name: reference[name] for name in _LOGITS}, candidate)
    scores = np.asarray([[span["score"] if span else 0.0 for span in side["spans"]] for side in (reference, candidate)])
    return np.where(_same_span(reference, candidate) == 1, np.abs(scores[0] - scores[1]), np.inf)


def _moved_probability(before: Floats, after: Floats) -> Floats:
    """The probability that moved between the positions of one text."""
    return np.asarray(np.abs(softmax(before[None]) - softmax(after[None])).sum(axis=-1) / 2)


def _right_answers(gold: Sequence[str], answers: Answers, labels: Sequence[str]) -> Column:
    """1 where the best span's text is the right one, spaces and case apart."""
    texts = [span["answer"] if span else "" for span in answers["spans"]]
    pairs = zip(texts, gold, strict=True)
    return np.asarray([_plain(answer) == _plain(right) for answer, right in pairs], np.float64)


def _plain(text: str) -> str:
    return " ".join(text.lower().split())


def _requests(texts: Sequence[Text], facts: Mapping[str, Any]) -> list[RequestRow]:
    return [{"QUESTION": first_text(text), "CONTEXT": second_text(text)} for text in texts]


def _ask(library: Plain, item: tuple[str, str]) -> list[dict[str, Any]]:
    """The best span over all windows, as transformers 4's pipeline chose it: its version 5 has none."""
    question, context = item
    # A family that pads on the left was trained with the context first.
    first = library.tokenizer.padding_side == "left"
    options = {
        "max_length": library.tokenizer.model_max_length,
        "return_overflowing_tokens": True,
        "return_offsets_mapping": True,
    }
    # Lists, so that an empty context is read as the second text of a pair.
    texts, cut = (([context], [question]), "only_first") if first else (([question], [context]), "only_second")
    special = library.tokenizer.num_special_tokens_to_add(pair=True)
    room = options["max_length"] - len(library.tokenizer(question, add_special_tokens=False).input_ids) - special
    encoded = library.tokenizer(*texts, truncation=cut, stride=max(0, min(STRIDE, room // 2)), **options)
    best: dict[str, Any] = {"score": 0.0, "start": 0, "end": 0}
    for window in range(len(encoded["input_ids"])):
        span = _best_of_window(library, encoded, window, context_id=0 if first else 1)
        best = span if span and span["score"] > best["score"] else best
    return [best] if best["end"] else []


def _best_of_window(library: Plain, encoded: Any, window: int, *, context_id: int) -> dict[str, Any] | None:
    import torch

    names = [name for name in library.tokenizer.model_input_names if name in encoded]
    output = library.model(**{name: torch.tensor([encoded[name][window]]) for name in names})
    parts = encoded.sequence_ids(window)
    positions = [position for position, part in enumerate(parts) if part == context_id]
    if not positions:
        return None
    # The classification token stands for "no answer" and takes its share of the probability.
    special = [position for position, part in enumerate(parts) if part is None]
    kept = torch.tensor([*positions, *(special[-1:] if context_id == 0 else special[:1])])
    start, end = (
        logits[0][kept].double().softmax(0)[: len(positions)] for logits in (output.start_logits, output.end_logits)
    )
    scores = (start[:, None] * end[None, :]).triu().tril(LONGEST - 1)
    first, last = divmod(int(scores.argmax()), len(positions))
    offsets = encoded["offset_mapping"][window]
    return {
        "score": float(scores[first, last]),
        "start": offsets[positions[first]][0],
        "end": offsets[positions[last]][1],
    }


def _column() -> Any:
    import pyarrow as pa

    position = pa.int32()
    return pa.list_(pa.struct({"answer": pa.string(), "score": pa.float32(), "start": position, "end": position}))


TASK = Task(
    name="question-answering",
    describe="the best spans of a context, with scores and character offsets",
    model_class="AutoModelForQuestionAnswering",
    outputs=lambda ref: tuple(tensor(name, "sequence") for name in _LOGITS),
    head=Head(lambda output, inputs, ref: (output.start_logits, output.end_logits)),
    texts="pair",
    asks=True,
    library=Library(
        ask=_ask,
        numbers=lambda answer: {f"the span {span['start']}-{span['end']}": span["score"] for span in answer},
        cause="the choice of the span",
    ),
    metrics=(
        Metric(
            "span_agreement",
            _same_span,
            kind="share",
            at_least=True,
            needs=("spans",),
            title="same span",
            meaning="share of texts whose best span is eager's",
        ),
        Metric("max_abs_difference", _largest, kind="worst"),
    ),
    change=relative_change(_LOGITS, _largest),
    gates=levels((Gate("span_agreement", ">=", 1.0), *FLOAT_NOISE), span_agreement=(">=", 0.98, 0.965)),
    headline="span_agreement",
    loss=Loss("probability moved between places", by_token(_moved_probability, *_LOGITS)),
    judged=_judged,
    from_wire=_from_wire,
    data_metrics={
        "exact-match": DataMetric(
            _right_answers,
            lambda rows: float(rows.mean()),
            right=lambda rows: rows == 1,
            mean_of_right=True,
            gold="text",
            paired=True,
        )
    },
    requests=_requests,
    in_graph="the head",
    on_server="long contexts by stride, best spans, no answer",
    column=_column,
)
