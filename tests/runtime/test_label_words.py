"""Words that a caller names are scored at the mask, and labels by their words."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.export.exported import LONG, answering, exported_family
from trimaran.runtime.answers import Answering
from trimaran.runtime.label_words import MASK_SCORES, label_scores, word_id
from trimaran.runtime.tasks.fill_mask import SERVED, fillings
from trimaran.runtime.text import Row

TEMPLATE = "{} It is the {mask} ."
LABELS = {"one": ["the", "again"], "two": ["and"]}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Answering:
    return answering(exported_family(tmp_path_factory.mktemp("masked"), "bert", "fill-mask", profile=LONG))


def test_a_labels_score_is_the_mean_of_its_words_as_a_share_of_all_labels(model: Answering) -> None:
    scores = np.zeros(400, np.float32)
    for word, value in (("the", 0.3), ("again", 0.1), ("and", 0.3)):
        scores[word_id(model.reader, word)] = value
    assert label_scores(model.reader, scores, LABELS) == [
        {"label": "two", "score": pytest.approx(0.6)},
        {"label": "one", "score": pytest.approx(0.4)},
    ]


def test_the_graph_gives_every_token_at_the_first_mask(model: Answering) -> None:
    encodings = model.encoder.encodings(["I [MASK] the [MASK] again", "a longer text with the [MASK] near its end"])
    outputs = model.outputs([Row(encoding.ids, encoding.type_ids) for encoding in encodings])
    for index, encoding in enumerate(encodings):
        place = list(encoding.ids).index(model.facts["mask_id"])
        row = outputs[MASK_SCORES][index]
        assert row.sum() == pytest.approx(1.0, abs=1e-5)
        np.testing.assert_allclose(row[outputs["token_ids"][index, place]], outputs["token_scores"][index, place])


def test_alone_equals_in_a_batch(model: Answering) -> None:
    texts = ["the park", "a much longer text about the park and the weather", "x"]
    together = fillings(model, texts, label_words=LABELS, template=TEMPLATE)
    for text, answer in zip(texts, together, strict=True):
        [alone] = fillings(model, [text], label_words=LABELS, template=TEMPLATE)
        assert [entry["label"] for entry in alone] == [entry["label"] for entry in answer]
        np.testing.assert_allclose([e["score"] for e in alone], [e["score"] for e in answer], atol=1e-5)


def test_of_a_long_text_the_text_is_cut_and_never_the_template(model: Answering) -> None:
    long = "The park is green and the weather is fine. " * 40
    with model.encoder.noting_rows() as notes:
        [encoding] = model.encoder.in_template([long], "The text: ", " It is [MASK] .")
    assert notes.truncated == [True] and len(notes.tokens) == 1
    assert 60 <= len(encoding) <= 64, "as much of the text as fits is read"
    ids = list(encoding.ids)
    [end] = model.encoder.encodings(["It is [MASK] ."])
    assert ids[-len(end.ids[1:]) :] == list(end.ids[1:])
    short = fillings(model, [long], label_words=LABELS, template=TEMPLATE)
    assert {entry["label"] for entry in short[0]} == set(LABELS)


def test_the_text_may_hold_braces(model: Answering) -> None:
    [plain] = fillings(model, ["{} {mask} {0}"], label_words=LABELS, template=TEMPLATE)
    assert sum(entry["score"] for entry in plain) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("texts", "options", "sentence"),
    [
        (["[MASK]"], {"label_words": {"a": ["pizza"]}}, "'pizza' is 5 tokens"),
        (["[MASK]"], {"targets": ["pizza"]}, "choose another word"),
        (["no mask"], {"label_words": LABELS}, "read none in a text"),
        (["[MASK] [MASK]"], {"targets": ["the"]}, "read 2 in a text"),
        (["a"], {"label_words": LABELS, "template": "no places"}, "once each"),
        (["a"], {"template": "{} {mask} {mask}"}, "once each"),
        (["[MASK]"], {"label_words": {"a": []}}, "at least one word"),
        (["[MASK]"], {"targets": []}, "at least one word"),
        (["[MASK]"], {"targets": ["the"], "label_words": LABELS}, "both given"),
        (["a " * 200], {"label_words": LABELS, "template": "{}" + "again " * 200 + "{mask}"}, "The template alone"),
    ],
)
def test_what_cannot_be_scored_is_refused_with_a_sentence(
    model: Answering, texts: list[str], options: dict[str, object], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        fillings(model, texts, **options)  # type: ignore[arg-type]


def test_a_graph_of_before_says_that_it_must_be_deployed_again(model: Answering) -> None:
    infer = model.infer

    def before(inputs: object) -> dict[str, object]:
        return {name: array for name, array in infer(inputs).items() if name != MASK_SCORES}  # type: ignore[arg-type]

    old = dataclasses.replace(model, infer=before)  # type: ignore[arg-type]
    assert fillings(old, ["[MASK]"])[0], "its best tokens are there as before"
    with pytest.raises(ValueError, match="Deploy it again"):
        fillings(old, ["[MASK]"], targets=["the"])


@pytest.mark.parametrize("value", ["text", ["list"], {"a": "string"}, {"a": [1]}])
def test_label_words_of_another_shape_are_refused(value: object) -> None:
    import json

    with pytest.raises(ValueError, match="an object with a list of strings for each name"):
        SERVED.parsed_options(json.dumps({"label_words": value}))
    assert SERVED.parsed_options('{"label_words": {"a": ["b"]}}') == {"label_words": {"a": ["b"]}}
