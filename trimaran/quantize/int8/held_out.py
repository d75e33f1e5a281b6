"""Asks the INT8 search's questions on held-out texts: how true the answers are with some layers in float.

The calibration texts are split in two. One half calibrates: it gives the ranges and token vectors from which each
layer's encoding is chosen. The other half is held out, and the search tries sets of layers on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from trimaran.core.artifact import Artifact
from trimaran.core.corpus import answer_context, digest_of_texts, kinds_of, spread
from trimaran.core.distances import Answers, Outputs
from trimaran.core.isolation import report_progress
from trimaran.core.margins import narrowest_first
from trimaran.core.proof_effort import USUAL, ProofEffort, effort_for
from trimaran.core.tasks import task
from trimaran.judging.sensitivity import Sensitivity
from trimaran.quantize.int8.search import Layers, SearchQuestion, search
from trimaran.quantize.settings import MakerSettings
from trimaran.runtime.text import Row, Text

QUICK_TEXTS, QUICK_TOKENS = 64, 64
# The answers of the float graph to some rows, and those with some layers in float.
FloatAnswers = Callable[[Sequence[Row]], Outputs]
Trial = Callable[[Layers, Sequence[Row]], Outputs]


def split_texts(texts: Sequence[Text], effort: ProofEffort = USUAL) -> tuple[list[Text], list[Text]]:
    """Return the texts that calibrate and the texts that are held out, both drawn evenly from the whole file.

    No text does both. Every second text of a kind calibrates, so that each kind is in both. Of 1,000 texts, 280
    calibrate and 280 are held out; of a large model fewer.
    """
    drawn = spread(texts, USUAL.calibrating + USUAL.held_out)
    kinds = kinds_of(drawn)
    calibrating = set(sorted(range(len(drawn)), key=kinds.__getitem__)[::2])
    return (
        list(spread([text for index, text in enumerate(drawn) if index in calibrating], effort.calibrating)),
        list(spread([text for index, text in enumerate(drawn) if index not in calibrating], effort.held_out)),
    )


def search_layers(
    parent: Artifact,
    settings: MakerSettings,
    texts: Sequence[Text],
    rows: Sequence[Row],
    *,
    exact: FloatAnswers,
    trial: Trial,
    quick_trial: Trial,
    work: Mapping[str, float],
    suspected: Mapping[str, float],
) -> tuple[Layers, Sensitivity]:
    """Return the layers to keep in float, and how that was found. `rows` are the held-out texts, tokenised.

    `quick_trial` answers the rows of single-layer trials: a quicker engine may do it, because they decide nothing.
    """
    kinds, row, context = kinds_of(texts), task(parent.task), answer_context(parent)
    reference = exact(rows)
    quick = _quick_texts(rows, reference, kinds)
    quick_rows = [rows[index] for index in quick]

    def judged(outputs: Outputs) -> Answers:
        return row.judged(context, texts, outputs)

    return search(
        SearchQuestion(
            task=parent.task,
            gates=settings.limits,
            reference=judged(reference),
            answer=lambda kept: judged(trial(kept, rows)),
            quick_reference=exact(quick_rows),
            quick_answer=lambda kept: quick_trial(kept, quick_rows),
            work=work,
            texts=len(rows),
            texts_digest=digest_of_texts(texts),
            kinds=kinds,
            quick_kinds=[kinds[index] for index in quick],
        ),
        budget_s=settings.budget_s,
        suspected=suspected,
        advance=report_progress,
        reporting_s=effort_for(parent.details).reporting_s,
    )


def _quick_texts(rows: Sequence[Row], reference: Outputs, kinds: Sequence[str]) -> list[int]:
    """Return the places of short rows for quick trials. Of labels, those nearest to another one: only such may change.

    Else the kinds take turns, so that each of them has some.
    """
    order = narrowest_first(reference) or sorted(range(len(rows)), key=_turns(kinds).__getitem__)
    short = [index for index in order if len(rows[index].ids) <= QUICK_TOKENS]
    return (short or list(order))[:QUICK_TEXTS]


def _turns(kinds: Sequence[str]) -> list[int]:
    """Return how many texts of the same kind stand before each. Example: a, b, a, a becomes 0, 0, 1, 2."""
    counts: Counter[str] = Counter()
    turns = []
    for kind in kinds:
        turns.append(counts[kind])
        counts[kind] += 1
    return turns
