from __future__ import annotations

from pathlib import Path

from trimaran.pipeline.schemas import schema_texts

FOLDER = Path(__file__).parents[2] / "docs" / "schemas"


def test_published_schemas_are_current() -> None:
    published = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.iterdir()}
    assert published == schema_texts(), "run `make schemas`"
