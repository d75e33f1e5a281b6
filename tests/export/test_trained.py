"""Heads that were really trained give their answers through the exported graph, word for word."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import answers
from tests.export import zoo
from tests.export.exported import LONG, answering, exported
from tests.export.test_answers import _eager_spans, _pipeline, _same
from tests.export.trained import TOPICS, trained_model
from trimaran.export.locate import locate
from trimaran.runtime.answers import Answering

pytestmark = pytest.mark.slow
Taught = Callable[[str], tuple[Path, Answering]]


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Taught:
    @functools.cache
    def make(task: str) -> tuple[Path, Answering]:
        root = tmp_path_factory.mktemp(task)
        folder = trained_model(root / "model", task)
        return folder, answering(exported(locate(str(folder), task_name=task), root, profile=LONG))

    return make


def test_trained_entities_are_found_where_they_are(taught: Taught) -> None:
    folder, served = taught("token-classification")
    texts = ["Clara Silva lives in Oslo.", "In 北京, Hugo Meyer was seen.", "Emma Rossi went to Tokyo 🍕"]
    said = [
        [(found["entity_group"], text[found["start"] : found["end"]]) for found in row]
        for text, row in zip(texts, answers.entities(served, texts, aggregation="first"), strict=True)
    ]
    assert said[0] == [("PER", "Clara Silva"), ("LOC", "Oslo")]
    assert said[1] == [("LOC", "北京"), ("PER", "Hugo Meyer")]
    assert said[2] == [("PER", "Emma Rossi"), ("LOC", "Tokyo")]
    wanted = _pipeline(folder, "token-classification", "bert")
    for aggregation in ("none", "simple", "first", "average", "max"):
        theirs: list[Any] = [list(wanted(text, aggregation_strategy=aggregation)) for text in texts]
        _same(answers.entities(served, texts, aggregation=aggregation), theirs)


def test_trained_questions_are_answered(taught: Taught) -> None:
    folder, served = taught("question-answering")
    context = "In 2011, Greta Novak left Vienna."
    for question, wanted in (("Who?", "Greta Novak"), ("Where?", "Vienna"), ("When?", "2011")):
        (best,) = answers.answers(served, [(question, context)])[0]
        assert best["answer"] == wanted
        assert best["score"] > 0.5
        eager = _eager_spans(folder, question, context, segments=True, context_first=False, stride=8)
        assert best["score"] == pytest.approx(max(eager.values()), abs=1e-5)
        assert max(eager, key=lambda span: eager[span]) == (best["start"], best["end"])


def test_trained_ranking_puts_the_topic_first(taught: Taught) -> None:
    from sentence_transformers import CrossEncoder

    folder, served = taught("rerank")
    documents = [f"The {words[1]} and the {words[2]}." for words in TOPICS]
    judge = CrossEncoder(str(folder), device="cpu")
    for place, words in enumerate(TOPICS):
        (mine,) = answers.ranked(served, [(words[0], documents)])
        assert mine[0]["index"] == place
        assert mine[0]["score"] > 0.5 > mine[1]["score"]
        theirs = judge.rank(words[0], documents)
        assert [row["index"] for row in mine] == [row["corpus_id"] for row in theirs]
        assert [row["score"] for row in mine] == pytest.approx([row["score"] for row in theirs], abs=1e-5)


def test_every_lesson_is_for_a_task_with_a_head() -> None:
    from tests.export.trained import LESSONS

    assert set(LESSONS) <= set(zoo.HEADS)
