"""8 MB of `true` in the place of texts made three errors for each item, and the event loop listed them all."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError as SchemaError

from trimaran.core.choices import MOST_TEXTS
from trimaran.serving.gateway.compatible_messages import ServedRerankRequest
from trimaran.serving.gateway.messages import EmbeddingsRequest
from trimaran.serving.gateway.reading import parsed
from trimaran.serving.gateway.refusals import Refusal
from trimaran.serving.gateway.routes import ROUTES

MANY = 2_000
WRONG_ITEMS: tuple[Any, ...] = (True, -1, 0.5, None, [0.5], [[]], [{}])
BODIES = {path: row.request for path, row in ROUTES.items() if row.request is not None}


@pytest.mark.parametrize("path", BODIES)
def test_a_list_of_mistakes_is_read_to_its_first_one(path: str) -> None:
    example = BODIES[path].example
    lists = [name for name, value in example.items() if isinstance(value, list)]
    for name in lists or list(example)[:1]:
        for item in WRONG_ITEMS:
            # After one that is right, and before all others.
            for items in ([item] * MANY, ["a"] + [item] * MANY):
                body = json.dumps({**example, name: items}).encode()
                with pytest.raises(SchemaError) as found:
                    BODIES[path].model_validate_json(body)
                # One for each kind that an item may be.
                assert found.value.error_count() <= 6
                with pytest.raises(Refusal) as refused:
                    parsed(BODIES[path], body)
                assert refused.value.status == 422


@pytest.mark.parametrize("path", BODIES)
def test_a_body_of_unknown_fields_is_refused_without_listing_them(path: str) -> None:
    unknown = {f"field {number}": 1 for number in range(MANY)}
    body = json.dumps({**BODIES[path].example, **unknown}).encode()
    if BODIES[path].model_config["extra"] == "forbid":
        with pytest.raises(Refusal, match="many unknown fields"):
            parsed(BODIES[path], body)
    else:
        assert parsed(BODIES[path], body)


VALUES = {
    "empty lists": "[" + "[]," * MANY + "[]]",
    "empty objects": "[" + "{}," * MANY + "{}]",
    "fields": "{" + ",".join(f'"{number}":1' for number in range(MANY)) + "}",
    "lists in lists": "[" + ",".join(["[" * 40 + "]" * 40] * (MANY // 40)) + "]",
    "numbers after quotes": r'["\\\" [,{", "\\", ' + "1," * MANY + "1]",
}


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_a_value_of_the_wrong_type_is_not_turned_into_millions_of_objects(values: str) -> None:
    """Before it refuses a value, pydantic makes Python objects of it: 8 MB of `[]` took 1.2 s and 400 MB."""
    body = f'{{"input": "a", "user": {values}}}'.encode()
    with pytest.raises(Refusal, match="The values in the body") as refused:
        parsed(EmbeddingsRequest, body, most_values=MANY - 1)
    assert refused.value.status == 413


@pytest.mark.parametrize("text", ["a,[{" * MANY, r"\",[{\\" * MANY, "\\" * 5 + '"' + "," * MANY])
def test_commas_and_brackets_of_a_text_are_no_values(text: str) -> None:
    body = json.dumps({"input": [text, text]}).encode()
    assert parsed(EmbeddingsRequest, body, most_values=MANY - 1)


def test_of_a_document_only_the_text_is_kept() -> None:
    """A document of 8 MB of `[]` beside its text took 1.3 s and 400 MB, for as long as the request took."""
    body = {"query": "a", "documents": ["b", {"text": "c", "d": [[]] * MANY}]}
    documents = parsed(ServedRerankRequest, json.dumps(body).encode()).documents  # type: ignore[attr-defined]
    assert documents[0] == "b" and documents[1].model_dump() == {"text": "c"}


@pytest.mark.parametrize("item", ['""', "1", "[1]"])
def test_a_list_without_end_is_too_large(item: str) -> None:
    body = '{"input":[' + ",".join([item] * (MOST_TEXTS + 1)) + "]}"
    with pytest.raises(Refusal) as refused:
        parsed(EmbeddingsRequest, body.encode())
    assert refused.value.status == 413
