"""A promise without a test is a wish, and a test without a promise helps nobody who reads the page."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "security.md"


def test_the_page_and_the_folder_name_the_same_attacks() -> None:
    named = set(re.findall(r"`(test_\w+\.py)`", PAGE.read_text()))
    assert named == {path.name for path in Path(__file__).parent.glob("test_*.py")} - {Path(__file__).name}
