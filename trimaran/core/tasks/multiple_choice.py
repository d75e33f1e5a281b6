"""Multiple choice: which of several choices fits a text or a question best.

The graph scores one (text, choice) pair a row. The choices of one text are judged together, because only their order
and their probabilities reach a caller: each judged text has four choices, its own and those of its neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trimaran.core.distances import Answers, Column
from trimaran.core.metrics import Metric
from trimaran.core.tasks.library import Library, Plain, indexed, scores_by_index
from trimaran.core.tasks.shared import MAX_ABS_DIFFERENCE, RELATIVE_CHANGE, in_given_order, indexed_column, logarithms
from trimaran.core.tasks.task import (
    FLOAT_NOISE,
    Gate,
    Head,
    Loss,
    Task,
    grouped,
    levels,
    neighbours_second,
    tensor,
    with_neighbours,
)
from trimaran.runtime.text import Text, softmax

_CHOICES = 4


def _judging(texts: Sequence[Text]) -> tuple[Text, ...]:
    """Each text with its own choice and those of its neighbours, one pair a row."""
    return grouped(texts, neighbours_second(texts), _CHOICES)


def _probabilities(answers: Answers) -> Column:
    """Of each text the probabilities of its choices."""
    scores = answers["score"].reshape(-1)
    whole = len(scores) // _CHOICES * _CHOICES
    groups = scores[:whole].reshape(-1, _CHOICES) if whole else scores[None]
    return np.asarray(softmax(groups), np.float64)


def _same_choice(reference: Answers, candidate: Answers) -> Column:
    sides = [_probabilities(side).argmax(-1) for side in (reference, candidate)]
    return np.asarray(sides[0] == sides[1], np.float64)


def _changes(reference: Answers, candidate: Answers) -> Column:
    return np.asarray(np.abs(_probabilities(reference) - _probabilities(candidate)).max(axis=1))


def _moved_scores(reference: Answers, candidate: Answers) -> Column:
    """By row: a search adds up what its layers add to the squared error of a score."""
    delta = reference["score"].astype(np.float64) - candidate["score"]
    return np.asarray(np.square(delta).reshape(len(delta), -1).mean(axis=1))


def _ask(library: Plain, item: tuple[str, Sequence[str]]) -> list[dict[str, Any]]:
    text, choices = item
    encoded = library.tokenizer(
        [text] * len(choices), list(choices), truncation=True, padding=True, return_tensors="pt"
    )
    logits = library.model(**{name: rows.unsqueeze(0) for name, rows in encoded.items()}).logits
    return indexed(logits.softmax(-1))


def _bulk_item(pair: tuple[str, str]) -> tuple[str, list[str]]:
    """A row of a collection names its choices in one column, separated by `|||`."""
    choices = [choice.strip() for choice in pair[1].split("|||")]
    if len(choices) < 2 or not all(choices):
        raise ValueError("Multiple choice wants at least two choices, separated by |||.")
    return pair[0], choices


TASK = Task(
    name="multiple-choice",
    describe="the best of several choices for a text, with probabilities",
    model_class="AutoModelForMultipleChoice",
    outputs=lambda ref: (tensor("score", 1),),
    # transformers' heads read (texts, choices, tokens); one choice a row lets any number of them share a batch.
    head=Head(
        lambda output, inputs, ref: output.logits,
        prepare=lambda inputs: {name: array.unsqueeze(1) for name, array in inputs.items()},
    ),
    texts="pair",
    judging=_judging,
    library=Library(ask=_ask, numbers=scores_by_index),
    metrics=(
        Metric(
            "choice_agreement",
            _same_choice,
            kind="share",
            at_least=True,
            title="same choice",
            meaning="share of texts that get eager's choice",
        ),
        Metric("mean_probability_change", _changes),
        Metric("tail_probability_change", _changes, kind="tail"),
        MAX_ABS_DIFFERENCE,
    ),
    change=RELATIVE_CHANGE,
    gates=levels(
        (Gate("choice_agreement", ">=", 1.0), *FLOAT_NOISE),
        choice_agreement=(">=", 0.98, 0.965),
        mean_probability_change=("<=", 0.005, 0.01),
        tail_probability_change=("<=", 0.02, 0.05),
    ),
    headline="choice_agreement",
    loss=Loss("(Δ score)²", _moved_scores),
    # Logarithms of probabilities differ from scores by a constant a text.
    from_wire=lambda numbers, tensors, other: {"score": logarithms(in_given_order(tensors, "BEST", "PROBABILITIES"))},
    requests=lambda texts, facts: with_neighbours(texts, "TEXT", "CHOICES", _CHOICES),
    most_requests=32,
    in_graph="the head",
    on_server="softmax over the choices, best first",
    column=indexed_column,
    bulk_item=_bulk_item,
)
