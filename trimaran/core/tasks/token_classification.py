"""Token classification: entities with character offsets.

Two sides agree on a text where all its entities have the same label, start and end. These entities are what a caller
receives. Token labels would also count the "O" between entities, and would miss what aggregation joins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from trimaran.core.distances import (
    Answers,
    Column,
    Outputs,
    by_token,
    largest_differences,
    same_best,
    softmax_changes,
)
from trimaran.core.metrics import Metric
from trimaran.core.tasks.library import Library
from trimaran.core.tasks.shared import LOGITS, relative_change
from trimaran.core.tasks.task import (
    FLOAT_NOISE,
    AnswerContext,
    Gate,
    Loss,
    Task,
    WireTensors,
    first_text,
    levels,
    own_tokens,
    parsed_rows,
    tensor,
)
from trimaran.runtime.tasks.token_classification import AGGREGATIONS, entities_of
from trimaran.runtime.text import Text, softmax

# (label, start, end) -> score.
_Found = dict[tuple[str, int, int], float]


def _found(entities: Sequence[dict[str, Any]]) -> _Found:
    return {
        (str(entity.get("entity_group", entity.get("entity"))), int(entity["start"]), int(entity["end"])): float(
            entity["score"]
        )
        for entity in entities
    }


def _judged(context: AnswerContext, texts: Sequence[Text], outputs: Outputs) -> Answers:
    rows = []
    for text, encoding, logits in zip(texts, context.encoder.encodings(texts), outputs["token_logits"], strict=True):
        scores = softmax(own_tokens(encoding, logits))
        rows.append(
            _found(entities_of(first_text(text), encoding, scores, context.labels, context.reader, "simple", ("O",)))
        )
    return {**outputs, "entities": rows}


def _from_wire(numbers: str, tensors: WireTensors, other: WireTensors) -> Answers:
    return {"entities": [_found(row) for row in parsed_rows(tensors["ENTITIES"])]}


def _same_entities(reference: Answers, candidate: Answers) -> Column:
    """1 where both sides find exactly the same entities."""
    pairs = zip(reference["entities"], candidate["entities"], strict=True)
    return np.asarray([before.keys() == after.keys() for before, after in pairs], np.float64)


def _with_entities(reference: Answers, candidate: Answers) -> npt.NDArray[np.bool_]:
    """Texts in which either side finds an entity: the others agree on nothing, which is no agreement."""
    pairs = zip(reference["entities"], candidate["entities"], strict=True)
    return np.asarray([bool(before or after) for before, after in pairs], bool)


def _largest(reference: Answers, candidate: Answers) -> Column:
    """By the graph's numbers where both sides have them, else by the scores of the entities."""
    if "token_logits" in reference and "token_logits" in candidate:
        return largest_differences({"token_logits": reference["token_logits"]}, candidate)
    changes = []
    for before, after in zip(reference["entities"], candidate["entities"], strict=True):
        same = before.keys() == after.keys()
        changes.append(max((abs(before[key] - after[key]) for key in before), default=0.0) if same else np.inf)
    return np.asarray(changes, np.float64)


def _column() -> Any:
    import pyarrow as pa

    text, number, position = pa.string(), pa.float32(), pa.int32()
    # `entity` and `index` belong to the aggregation `none`, `entity_group` to the others.
    fields = {"entity_group": text, "entity": text, "index": position, "score": number, "word": text}
    return pa.list_(pa.struct({**fields, "start": position, "end": position}))


# Texts without an entity agree on nothing. With fewer than these, a handful of names would decide.
FEWEST_WITH_ENTITIES = 300
_probabilities = by_token(softmax_changes, "token_logits")

TASK = Task(
    name="token-classification",
    describe="entities with character offsets",
    model_class="AutoModelForTokenClassification",
    outputs=lambda ref: (tensor("token_logits", "sequence", len(ref.labels)),),
    head=LOGITS,
    labelled=True,
    library=Library(
        pipeline="token-classification",
        ask=lambda library, text, *, aggregation="simple": library(text, aggregation_strategy=aggregation),
        numbers=lambda answer: {f"{key[0]} at {key[1]}-{key[2]}": score for key, score in _found(answer).items()},
        options=tuple({"aggregation": name} for name in AGGREGATIONS),
        cause="the aggregation of tokens",
    ),
    metrics=(
        Metric(
            "entity_agreement",
            _same_entities,
            kind="share",
            at_least=True,
            counted=_with_entities,
            texts="texts with an entity",
            fewest=FEWEST_WITH_ENTITIES,
            needs=("entities",),
            title="same entities",
            meaning="share of the texts with an entity whose entities are exactly eager's",
        ),
        Metric(
            "token_agreement", by_token(same_best, "token_logits"), at_least=True, most=1.0, needs=("token_logits",)
        ),
        Metric("mean_probability_change", _probabilities, most=1.0, needs=("token_logits",)),
        Metric("max_abs_difference", _largest, kind="worst"),
    ),
    change=relative_change(("token_logits",), _largest),
    gates=levels((Gate("entity_agreement", ">=", 1.0), *FLOAT_NOISE), entity_agreement=(">=", 0.97, 0.955)),
    headline="entity_agreement",
    loss=Loss("|Δ probability| by token", _probabilities),
    judged=_judged,
    with_names=True,
    from_wire=_from_wire,
    in_graph="the head",
    on_server="softmax, aggregation (none, simple, first, average, max), offsets",
    column=_column,
)
