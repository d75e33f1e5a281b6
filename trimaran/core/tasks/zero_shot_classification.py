"""Zero-shot classification: labels named at request time, through an NLI head."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from trimaran.core.distances import Answers, Outputs
from trimaran.core.errors import UsageError
from trimaran.core.spec import ModelRef
from trimaran.core.tasks.library import Library
from trimaran.core.tasks.shared import (
    LABEL_GATES,
    LABEL_METRICS,
    LOGITS,
    MARGIN_LOSS,
    PROBABILITY_CHANGE,
    labels_from_wire,
)
from trimaran.core.tasks.task import AnswerContext, RequestRow, Task, first_text, grouped, tensor
from trimaran.runtime.text import Text

_LABELS = ("sports", "politics", "travel")
# As the server's template makes them.
_HYPOTHESES = tuple(f"This example is {label}." for label in _LABELS)


def _facts(ref: ModelRef, tokenizer: Any) -> dict[str, int]:
    entailing = [index for index, label in enumerate(ref.labels) if label.lower().startswith("entail")]
    if not entailing:
        raise UsageError(
            f"None of the labels of {ref.source} ({', '.join(ref.labels)}) is entailment.",
            hint="Zero-shot needs an NLI head; name its labels in id2label of config.json.",
        )
    return {"entailment": entailing[0], "contradiction": -1 if entailing[0] == 0 else 0}


def _judging(texts: Sequence[Text]) -> tuple[Text, ...]:
    """Each text with the hypothesis of every label: the label that fits best is what a caller gets."""
    return grouped(texts, lambda index, turn: _HYPOTHESES[turn], len(_HYPOTHESES))


def _judged(context: AnswerContext, texts: Sequence[Text], outputs: Outputs) -> Answers:
    """Of each text the logit of entailment of every label. Pairs of another kind stay as they are."""
    turns = zip(texts, itertools.cycle(_HYPOTHESES), strict=False)
    if len(texts) % len(_HYPOTHESES) or not all(text[1] == hypothesis for text, hypothesis in turns):
        return outputs
    entailment = outputs["logits"][:, context.facts["entailment"]]
    return {"logits": entailment.reshape(-1, len(_HYPOTHESES))}


def _requests(texts: Sequence[Text], facts: Mapping[str, Any]) -> list[RequestRow]:
    return [{"TEXT": first_text(text), "CANDIDATE_LABELS": _LABELS} for text in texts]


def _column() -> Any:
    import pyarrow as pa

    return pa.struct({"labels": pa.list_(pa.string()), "scores": pa.list_(pa.float32())})


TASK = Task(
    name="zero-shot-classification",
    describe="labels named at request time, through an NLI head",
    model_class="AutoModelForSequenceClassification",
    outputs=lambda ref: (tensor("logits", len(ref.labels)),),
    head=LOGITS,
    texts="pair",
    labelled=True,
    automatic=False,
    facts=_facts,
    library=Library(
        pipeline="zero-shot-classification",
        ask=lambda library, text, *, labels: library(text, candidate_labels=list(labels)),
        numbers=lambda answer: dict(zip(answer["labels"], answer["scores"], strict=True)),
        cause="which label is entailment",
    ),
    metrics=LABEL_METRICS,
    change=PROBABILITY_CHANGE,
    gates=LABEL_GATES,
    headline="label_agreement",
    loss=MARGIN_LOSS,
    judging=_judging,
    judged=_judged,
    from_wire=labels_from_wire,
    requests=_requests,
    most_requests=32,
    in_graph="the head",
    on_server="hypotheses from a template, entailment",
    column=_column,
    bulk_texts="single",
    needs_options={"labels": '["one", "two"]'},
)
