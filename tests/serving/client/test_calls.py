"""The plan of a call says before anything is sent what a model cannot do."""

from __future__ import annotations

import json

import pytest

from trimaran.core.errors import UsageError
from trimaran.serving.client import calls
from trimaran.serving.client.question import Model

WORDS = {"sport": "football", "money": ["banks", "prices"]}


def test_a_model_that_somebody_else_made_is_described_whatever_it_lacks() -> None:
    """Its configuration came as KeyError, and a gateway of a server with such a model knew no model at all."""
    found = Model.from_config("theirs", {"output": [{"name": "COUNT"}]})
    assert (found.inputs, found.outputs, found.task, found.max_batch_size) == (frozenset(), {"COUNT": ()}, "", 1)


def masked(**parameters: str) -> Model:
    return Model("m", "fill-mask", 32, frozenset({"TEXT"}), {"FILLINGS": (1,)}, parameters)


def test_a_model_deployed_before_is_not_sent_label_words() -> None:
    for ask in (
        lambda: calls.classify(masked(), ["a"], label_words=WORDS),
        lambda: calls.fill(masked(), ["a"], targets=["b"]),
        lambda: calls.fill(masked(), ["a"], template="{} {mask}"),
    ):
        with pytest.raises(UsageError, match="Model m was deployed before words could be scored") as refused:
            ask()
        assert "Deploy it again" in refused.value.hint
    assert calls.fill(masked(), ["a"], top_k=2).requests, "its best tokens are asked as before"


def test_label_words_travel_as_options() -> None:
    [request] = calls.classify(masked(label_words="true"), ["a"], label_words=WORDS, template="{} {mask}").requests
    options = json.loads(request["OPTIONS"][0, 0])
    assert options == {"label_words": {"sport": ["football"], "money": ["banks", "prices"]}, "template": "{} {mask}"}


@pytest.mark.parametrize("words", [{}, ["a"], {"a": []}, {"a": [1]}, {1: ["a"]}])
def test_label_words_that_are_no_mapping_of_words_are_refused(words: object) -> None:
    with pytest.raises(UsageError):
        calls.classify(masked(label_words="true"), ["a"], label_words=words)  # type: ignore[arg-type]
