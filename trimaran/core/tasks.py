"""What an encoder is asked for: one row a task, with its outputs, its distance and its gates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from trimaran.core import outputs
from trimaran.core.errors import UsageError
from trimaran.core.parity import (
    Outputs,
    classification_change,
    classification_fidelity,
    embedding_change,
    embedding_fidelity,
    entity_fidelity,
    filling_fidelity,
    largest_change,
    score_fidelity,
    span_fidelity,
    sparse_fidelity,
    token_vector_fidelity,
)
from trimaran.core.spec import ModelRef, TensorSpec

Level = Literal["exact", "strict", "balanced"]
LEVELS: tuple[Level, ...] = ("exact", "strict", "balanced")


@dataclass(frozen=True)
class Gate:
    """A limit on one metric; a candidate that breaks it is rejected with the number."""

    metric: str
    comparison: Literal["<=", ">="]
    limit: float


@dataclass(frozen=True)
class Task:
    """`fidelity` compares a candidate with eager PyTorch; `change` one engine with itself, run another way.

    `outputs(hidden, labels)` gives the usual outputs; `outputs_of(ref)` those of one model. `bare` tasks need no
    head; `labelled` ones have names for their logits; `automatic` ones may be inferred from an architecture.
    `texts` is what one row is made of; a task that `asks` is given a text and what is asked of it, and its models read
    what is asked first. `in_graph` and `on_server` say where the answer is finished.
    """

    name: str
    model_class: str
    outputs: Callable[[int, int], tuple[TensorSpec, ...]]
    fidelity: Callable[[Outputs, Outputs], dict[str, float]]
    change: Callable[[Outputs, Outputs], float]
    gates: Mapping[Level, tuple[Gate, ...]]
    headline: str
    describe: str
    bare: bool = False
    labelled: bool = False
    automatic: bool = True
    texts: Literal["single", "pair", "either"] = "single"
    asks: bool = False
    in_graph: str = ""
    on_server: str = ""


# The name of a classifier's output says what its numbers are.
_CLASSIFIER_OUTPUT = {"softmax": "logits", "sigmoid": "label_probabilities", "none": "values"}


def outputs_of(ref: ModelRef) -> tuple[TensorSpec, ...]:
    """The outputs of this very model: its width, its labels, the extra tensors it was asked for."""
    widths = {"embedding": ref.width or ref.hidden, "sparse-embedding": ref.vocabulary}
    counts = {"fill-mask": ref.top_k}
    specs = task(ref.task).outputs(widths.get(ref.task, ref.hidden), counts.get(ref.task, len(ref.labels)))
    if ref.task == "text-classification":
        specs = (specs[0].model_copy(update={"name": _CLASSIFIER_OUTPUT[ref.activation]}),)
    extras = {
        "hidden_states": outputs.spec_of("hidden_states", ref.layers + 1, "sequence", ref.hidden),
        "attentions": outputs.spec_of("attentions", ref.layers, ref.heads, "sequence", "sequence"),
    }
    return (*specs, *(extras[name] for name in ref.extras))


# As served, a text's answer must not depend on the texts that happen to share its batch.
_INVARIANCE = Gate("batch_change", "<=", 1e-5)


def _levels(
    exact: tuple[Gate, ...], **limits: tuple[Literal["<=", ">="], float, float]
) -> dict[Level, tuple[Gate, ...]]:
    """Gates from metric=(comparison, strict limit, balanced limit)."""
    return {
        "exact": (*exact, _INVARIANCE),
        "strict": (*(Gate(name, sign, strict) for name, (sign, strict, _) in limits.items()), _INVARIANCE),
        "balanced": (*(Gate(name, sign, loose) for name, (sign, _, loose) in limits.items()), _INVARIANCE),
    }


_FLOAT_NOISE = (Gate("max_abs_difference", "<=", 1e-5),)
_CLASSES = _levels(
    (Gate("label_agreement", ">=", 1.0), Gate("mean_probability_change", "<=", 1e-5)),
    label_agreement=(">=", 0.995, 0.99),
    mean_probability_change=("<=", 0.005, 0.01),
    tail_probability_change=("<=", 0.02, 0.05),
)

TASKS: dict[str, Task] = {
    row.name: row
    for row in (
        Task(
            name="embedding",
            model_class="AutoModel",
            outputs=outputs.embedding_outputs,
            fidelity=embedding_fidelity,
            change=embedding_change,
            gates=_levels(
                _FLOAT_NOISE,
                mean_cosine_distance=("<=", 1.2e-3, 4e-3),
                tail_cosine_distance=("<=", 1e-2, 3e-2),
                rank_correlation=(">=", 0.9995, 0.999),
                neighbour_overlap=(">=", 0.97, 0.94),
            ),
            headline="neighbour_overlap",
            describe="one vector a text: pooling and normalisation inside the graph",
            bare=True,
            in_graph="layers, pooling, Dense, whitening, cut, unit length",
        ),
        Task(
            name="text-classification",
            model_class="AutoModelForSequenceClassification",
            outputs=outputs.logit_outputs,
            fidelity=classification_fidelity,
            change=classification_change,
            gates=_CLASSES,
            headline="label_agreement",
            describe="labels with probabilities, best first",
            labelled=True,
            texts="either",
            in_graph="the head; sigmoid when labels are independent",
            on_server="softmax, labels in order",
        ),
        Task(
            name="feature-extraction",
            model_class="AutoModel",
            outputs=outputs.token_vector_outputs,
            fidelity=token_vector_fidelity,
            change=largest_change,
            gates=_levels(_FLOAT_NOISE, mean_cosine_distance=("<=", 1.2e-3, 4e-3)),
            headline="mean_cosine_distance",
            describe="one vector a token; all layers and attentions when asked",
            bare=True,
            automatic=False,
            on_server="padding removed",
        ),
        Task(
            name="token-classification",
            model_class="AutoModelForTokenClassification",
            outputs=outputs.token_logit_outputs,
            fidelity=entity_fidelity,
            change=largest_change,
            gates=_levels((Gate("entity_agreement", ">=", 1.0), *_FLOAT_NOISE), entity_agreement=(">=", 0.99, 0.98)),
            headline="entity_agreement",
            describe="entities with character offsets",
            labelled=True,
            in_graph="the head",
            on_server="softmax, aggregation (none, simple, first, average, max), offsets",
        ),
        Task(
            name="question-answering",
            model_class="AutoModelForQuestionAnswering",
            outputs=outputs.span_outputs,
            fidelity=span_fidelity,
            change=largest_change,
            gates=_levels((Gate("span_agreement", ">=", 1.0), *_FLOAT_NOISE), span_agreement=(">=", 0.99, 0.98)),
            headline="span_agreement",
            describe="the best spans of a context, with scores and character offsets",
            texts="pair",
            asks=True,
            in_graph="the head",
            on_server="long contexts by stride, best spans, no answer",
        ),
        Task(
            name="fill-mask",
            model_class="AutoModelForMaskedLM",
            outputs=outputs.filling_outputs,
            fidelity=filling_fidelity,
            change=largest_change,
            gates=_levels(
                (Gate("token_agreement", ">=", 1.0), *_FLOAT_NOISE),
                token_agreement=(">=", 0.99, 0.98),
                mean_probability_change=("<=", 0.005, 0.01),
            ),
            headline="token_agreement",
            describe="the most probable tokens for each mask",
            in_graph="the head, softmax, top-k",
            on_server="masked positions, words",
        ),
        Task(
            name="rerank",
            model_class="AutoModelForSequenceClassification",
            outputs=outputs.score_outputs,
            fidelity=score_fidelity,
            change=largest_change,
            gates=_levels(_FLOAT_NOISE, rank_correlation=(">=", 0.9995, 0.999), mean_score_change=("<=", 0.005, 0.01)),
            headline="rank_correlation",
            describe="scores of documents for a query, best first",
            labelled=True,
            automatic=False,
            texts="pair",
            asks=True,
            in_graph="the head and its activation",
            on_server="documents in order",
        ),
        Task(
            name="sparse-embedding",
            model_class="AutoModelForMaskedLM",
            outputs=outputs.weight_outputs,
            fidelity=sparse_fidelity,
            change=largest_change,
            gates=_levels(
                _FLOAT_NOISE,
                mean_cosine_distance=("<=", 1.2e-3, 4e-3),
                rank_correlation=(">=", 0.9995, 0.999),
                heaviest_overlap=(">=", 0.97, 0.94),
            ),
            headline="heaviest_overlap",
            describe="SPLADE weights over the vocabulary",
            automatic=False,
            in_graph="the head, log(1 + relu), maximum or sum over tokens",
            on_server="tokens with weight, heaviest first",
        ),
        Task(
            name="zero-shot-classification",
            model_class="AutoModelForSequenceClassification",
            outputs=outputs.logit_outputs,
            fidelity=classification_fidelity,
            change=classification_change,
            gates=_CLASSES,
            headline="label_agreement",
            describe="labels named at request time, through an NLI head",
            labelled=True,
            automatic=False,
            texts="pair",
            in_graph="the head",
            on_server="hypotheses from a template, entailment",
        ),
    )
}


def task(name: str) -> Task:
    if name not in TASKS:
        raise UsageError(f"Unknown task {name!r}.", hint=f"Known: {', '.join(TASKS)}.")
    return TASKS[name]


def gates_for(name: str, level: Level, overrides: Mapping[str, float]) -> tuple[Gate, ...]:
    """The level's gates with single limits replaced; an override of a metric without a gate is refused."""
    gates = {gate.metric: gate for gate in task(name).gates[level]}
    unknown = sorted(set(overrides) - set(gates))
    if unknown:
        raise UsageError(f"No gate {unknown[0]!r} at level {level} of {name}.", hint=f"Gates: {', '.join(gates)}.")
    return tuple(
        Gate(gate.metric, gate.comparison, overrides.get(metric, gate.limit)) for metric, gate in gates.items()
    )
