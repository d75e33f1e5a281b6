"""Next sentence: the probability that a second text follows a first one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trimaran.core.spec import ModelRef
from trimaran.core.tasks.library import Library, Plain
from trimaran.core.tasks.shared import LABEL_GATES, LABEL_METRICS, MARGIN_LOSS, PROBABILITY_CHANGE
from trimaran.core.tasks.task import Head, RequestRow, Task, first_text, second_text, tensor
from trimaran.runtime.text import Text


def _finish(output: Any, inputs: Mapping[str, Any] | None, ref: ModelRef | None) -> Any:
    """BERT's head has two logits; the first one says that the second text follows."""
    logits = output.get("seq_relationship_logits")
    return (output.logits if logits is None else logits).softmax(dim=-1)[:, :1]


def _requests(texts: Sequence[Text], facts: Mapping[str, Any]) -> list[RequestRow]:
    return [{"TEXT": first_text(text), "NEXT": second_text(text)} for text in texts]


def _ask(library: Plain, pair: tuple[str, str]) -> float:
    return float(_finish(library.logits(*pair), None, None)[0, 0])


def _column() -> Any:
    import pyarrow as pa

    return pa.float32()


TASK = Task(
    name="next-sentence",
    describe="the probability that a second text follows the first",
    model_class="AutoModelForNextSentencePrediction",
    outputs=lambda ref: (tensor("label_probabilities", 1),),
    head=Head(_finish),
    texts="pair",
    fixed_labels=("follows",),
    library=Library(ask=_ask, numbers=lambda answer: {"the probability": answer}),
    metrics=LABEL_METRICS,
    change=PROBABILITY_CHANGE,
    gates=LABEL_GATES,
    headline="label_agreement",
    loss=MARGIN_LOSS,
    from_wire=lambda numbers, tensors, other: {numbers: tensors["FOLLOWS"]},
    requests=_requests,
    in_graph="the head, softmax",
    column=_column,
)
