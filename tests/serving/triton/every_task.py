"""A tiny model of every task, and for each something to ask it and what it says in process."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from tests.export.exported import LONG, answering, exported_family
from trimaran.core.artifact import Artifact
from trimaran.core.tasks import TASKS
from trimaran.model_repository.layout import lay_out

MASKED = "The [MASK] was quiet and the [MASK] slept."
CONTEXT = "Berlin 是德国的首都 🍕. " + "The park is green and the weather is fine. " * 8
WORDS = ("Angela Merkel visited Paris in 2015, didn't she?", "I love pizza 🍕 and naïve café talk!", "x")


class Question(NamedTuple):
    """Rows of strings by input name, the options of all of them, and the keywords they amount to in process."""

    rows: tuple[dict[str, Any], ...]
    options: dict[str, Any] = {}
    keywords: dict[str, Any] = {}


def _texts(*texts: str) -> tuple[dict[str, Any], ...]:
    return tuple({"TEXT": text} for text in texts)


_LABELLED = {"label_words": {"one": ["the", "again"], "two": ["and"]}, "template": "{} It is {mask} ."}
_WEIGHTS = {"outputs": ["sparse"], "top_k": 4}
_PIECES = {"stride": 16, "aggregation": "max"}
LABELS = ["politics", "food 🍕", "天气"]
QUESTIONS: dict[str, tuple[Question, ...]] = {
    "embedding": (
        Question(_texts(*WORDS)),
        Question(({"TEXT": "one", "TEXT_PAIR": "two"}, {"TEXT": "three", "TEXT_PAIR": "four five"})),
    ),
    "text-classification": (Question(_texts(*WORDS)), Question(({"TEXT": "one", "TEXT_PAIR": "two"},))),
    "zero-shot-classification": (
        Question(tuple({"TEXT": text, "CANDIDATE_LABELS": LABELS} for text in WORDS), keywords={"labels": LABELS}),
        Question(
            ({"TEXT": WORDS[0], "CANDIDATE_LABELS": LABELS},),
            {"multi_label": True, "template": "About {}"},
            {"labels": LABELS, "multi_label": True, "template": "About {}"},
        ),
    ),
    "rerank": (
        Question(({"QUERY": "weather 天气", "DOCUMENTS": list(WORDS)},)),
        Question(tuple({"QUERY": query, "DOCUMENTS": list(WORDS)} for query in ("a", "b")), {"top_k": 2}, {"top_k": 2}),
    ),
    "token-classification": (
        Question(_texts(*WORDS)),
        Question(_texts(" ".join(WORDS[:1] * 12)), _PIECES, _PIECES),
    ),
    "question-answering": (
        Question(tuple({"QUESTION": question, "CONTEXT": CONTEXT} for question in ("Where?", "What is green?"))),
        Question(({"QUESTION": "Where?", "CONTEXT": CONTEXT},), {"top_k": 3, "stride": 8}, {"top_k": 3, "stride": 8}),
    ),
    "fill-mask": (
        Question(_texts(MASKED, "nothing")),
        Question(_texts(MASKED), {"top_k": 2}, {"top_k": 2}),
        Question(_texts(*WORDS), _LABELLED, _LABELLED),
    ),
    "sparse-embedding": (Question(_texts(*WORDS)), Question(_texts(*WORDS), {"top_k": 4}, {"top_k": 4})),
    "feature-extraction": (Question(_texts(*WORDS)),),
    "hybrid-embedding": (Question(_texts(*WORDS)), Question(_texts(*WORDS), _WEIGHTS, _WEIGHTS)),
    "multiple-choice": (
        Question(tuple({"TEXT": text, "CHOICES": list(WORDS)} for text in WORDS)),
        Question(({"TEXT": "Where?", "CHOICES": ["here", "there"]},)),
    ),
    "next-sentence": (Question(tuple({"TEXT": text, "NEXT": "It slept. 🍕"} for text in WORDS)),),
}  # fmt: skip


def every_task(root: Path) -> tuple[Path, dict[str, Artifact]]:
    """A repository with a tiny BERT for each task, named as the task, and the graphs they were laid out from."""
    artifacts = {}
    for task in TASKS:
        located = {"extras": ("hidden_states", "attentions")} if task == "feature-extraction" else None
        artifacts[task] = exported_family(root / task, "bert", task, profile=LONG, located=located)
        lay_out(artifacts[task], repository=root / "repository", name=task, rows="padded", threads=1)
    return root / "repository", artifacts


def in_process(artifact: Artifact, question: Question) -> Any:
    """The tensors that the same graph gives without a server, each row asked alone."""
    wire = TASKS[artifact.task].served
    served = answering(artifact)
    answers = [
        TASKS[artifact.task].served.answer(served, [wire.item(row)], **question.keywords)[0] for row in question.rows
    ]
    return wire.tensors(answers)
