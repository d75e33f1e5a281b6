"""In which order tests are shared out among processes: files that take longest go first."""

from __future__ import annotations

import pytest

LONGEST_FIRST = (
    "tests/end_to_end/",
    "tests/export/test_every_family",
    "tests/suite/",
    "tests/gateway/",
    "tests/quantize/",
    "tests/bulk/",
    "tests/export/",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ranks = {folder: rank for rank, folder in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: next((ranks[f] for f in LONGEST_FIRST if item.nodeid.startswith(f)), len(ranks)))
