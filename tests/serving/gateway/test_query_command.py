"""Every task asked by the command `trimaran query`: the answers that the same graph gives in process."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import pytest

from tests.serving.gateway.conftest import Tasks
from tests.serving.gateway.test_every_task import TEMPLATE, WORDS_BY_LABEL, in_process, pairs
from tests.serving.triton.every_task import MASKED, WORDS
from tests.serving.triton.test_every_task import assert_alike
from trimaran.cli import main
from trimaran.serving.client.asking import example_command

QUERIES: dict[str, tuple[tuple[str, ...], str]] = {
    "embedding": (("a", "b ||| c"), "numbers: "),
    "text-classification": (("a",), "good 0."),
    "zero-shot-classification": (("a", "--label", "food", "--label", "politics"), "food 0."),
    "token-classification": ((WORDS[0],), "start end"),
    "question-answering": (("Where? ||| Ada lived in London.",), "answer score start end"),
    "fill-mask": ((MASKED,), "token_str sequence"),
    "rerank": (("weather", "rain", "money"), "rain 0."),
    "sparse-embedding": (("a",), '"weights": '),
    "feature-extraction": (("a",), '"vectors": '),
    "hybrid-embedding": (("a",), "token vectors of 24"),
    "multiple-choice": (("weather", "rain", "money"), "rain 0."),
    "next-sentence": (("It rained.", "She left."), "0."),
}


@pytest.mark.parametrize("task", QUERIES)
def test_the_command_asks_every_task(tasks: Tasks, capsys: pytest.CaptureFixture[str], task: str) -> None:
    given, words = QUERIES[task]
    said = []
    for options in ((), ("--json",)):
        with pytest.raises(SystemExit) as ended:
            main(["query", task, *given, "--url", tasks.server.grpc_url, *options])
        assert not ended.value.code
        said.append(capsys.readouterr().out)
    # How wide a column is depends on the answer.
    assert words in " ".join(said[0].split())
    assert json.loads(said[1])["answers"]


def typed(tasks: Tasks, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[Any, str, str]:
    """Exit code, stdout and stderr of `trimaran query`."""
    with pytest.raises(SystemExit) as ended:
        main(["query", *arguments, "--url", tasks.server.grpc_url])
    said = capsys.readouterr()
    return ended.value.code or 0, said.out, said.err


def test_the_command_classifies_by_label_words(tasks: Tasks, capsys: pytest.CaptureFixture[str]) -> None:
    labels = ("--label", "one=the,again", "--label", "two=and", "--template", TEMPLATE)
    code, out, err = typed(tasks, capsys, "fill-mask", "a", "b", *labels)
    assert code == 0, err
    wanted = pairs(in_process(tasks, "fill-mask", ["a", "b"], label_words=WORDS_BY_LABEL, template=TEMPLATE))
    lines = [
        f"{text}\t{', '.join(f'{name} {x:.4f}' for name, x in row)}" for text, row in zip("ab", wanted, strict=True)
    ]
    assert out.splitlines() == lines
    code, _, err = typed(tasks, capsys, "fill-mask", "a", "--label", "one")
    assert code == 2 and "wants a label with its words" in err and "--label sport=" in err
    code, _, err = typed(tasks, capsys, "text-classification", "a", "--template", TEMPLATE)
    assert code == 2 and "Leave out --label and --template" in err


@pytest.mark.parametrize("task", QUERIES)
def test_the_example_of_every_task_works_as_it_is_printed(
    tasks: Tasks, capsys: pytest.CaptureFixture[str], task: str
) -> None:
    program, command, *arguments = shlex.split(example_command(task, task, mask_token="[MASK]"))
    assert (program, command) == ("trimaran", "query")
    code, out, err = typed(tasks, capsys, *arguments, "--json")
    assert code == 0, err
    (answer,) = json.loads(out)["answers"]
    assert answer or task == "token-classification"


def test_a_question_and_its_context_are_typed_as_two_arguments(
    tasks: Tasks, capsys: pytest.CaptureFixture[str]
) -> None:
    question, context = "Where did Ada live?", "Ada lived in London."
    _, out, _ = typed(tasks, capsys, "question-answering", question, context, "--json")
    assert_alike(json.loads(out)["answers"], in_process(tasks, "question-answering", [(question, context)]))


def test_several_questions_are_typed_with_the_mark(tasks: Tasks, capsys: pytest.CaptureFixture[str]) -> None:
    pairs = [("Where?", "Ada lived in London."), ("Who?", "Ada.")]
    _, out, _ = typed(tasks, capsys, "question-answering", *map(" ||| ".join, pairs), "--json")
    assert_alike(json.loads(out)["answers"], in_process(tasks, "question-answering", pairs))


def test_the_mark_is_a_text_like_any_other_for_a_task_without_pairs(
    tasks: Tasks, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = typed(tasks, capsys, "token-classification", "Ada ||| London", "--json")
    assert_alike(json.loads(out)["answers"], in_process(tasks, "token-classification", ["Ada ||| London"]))


MISTYPED = [
    (
        ("question-answering", "ab"),
        r"a question and a context, found 1 text\..*Type: trimaran query question-ans",
    ),
    (("question-answering", "some text"), "wants a question and a context, found 1 text"),
    (("question-answering", "a", "b", "c"), "wants a question and a context, found 3 texts"),
    (("question-answering", "a ||| b", "c"), r"found 2 texts, only some of them with \|\|\|"),
    (("question-answering", "a |||"), r"a text on both sides of \|\|\|, found 'a \|\|\|'"),
    (("rerank", "a"), "wants a query and at least one document, found 1 text.*'What floats.*' 'A stone sinks.'"),
    (("zero-shot-classification", "a"), "wants texts and at least one --label, found no --label.*--label weather"),
    (("embedding", "a", "--label", "b"), "is not told labels.*Leave out --label"),
    (("embedding", "a", "--top-k", "3"), r"\(embedding\) ranks no answers.*Leave out --top-k"),
    (("embedding", "||| b"), r"a text on both sides of \|\|\|"),
]


@pytest.mark.parametrize(("arguments", "words"), MISTYPED, ids=[" ".join(row) for row, _ in MISTYPED])
def test_what_a_task_cannot_be_asked_exits_2_and_shows_how_it_is_typed(
    tasks: Tasks, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    code, out, err = typed(tasks, capsys, *arguments)
    assert (code, out) == (2, "")
    assert re.search(words, " ".join(err.split()))
    assert "Traceback" not in err


def test_the_command_has_a_row_for_every_task(tasks: Tasks) -> None:
    assert set(QUERIES) == set(tasks.artifacts)
