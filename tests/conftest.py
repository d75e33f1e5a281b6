"""How tests are shared out among processes: those that share a costly fixture stay together, long ones go first."""

from __future__ import annotations

import pytest

# Folders whose tests share a server or a deployed model, or look for processes that others of the folder start.
TOGETHER = ("tests/gateway/", "tests/bulk/test_ray")
LONGEST_FIRST = ("tests/end_to_end/", "tests/export/", "tests/gateway/", "tests/quantize/", "tests/bulk/")


def group_of(item: pytest.Item) -> str:
    """Tests of one group run in one process, one after the other."""
    place = item.nodeid.partition("::")[0]
    for folder in TOGETHER:
        if place.startswith(folder):
            return folder
    if "minilm" in getattr(item, "fixturenames", ()):
        return "minilm"
    family = getattr(item, "callspec", None) and item.callspec.params.get("family")  # type: ignore[attr-defined]
    return f"{family}" if place.startswith("tests/export/") and family else place


# First: xdist reads the groups in a hook of the same name. (xdist 3.8 writes them where pytest 9.2 no longer looks, so
# until one of the two changes tests are shared out singly, and costly fixtures are made in every process.)
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ranks = {folder: rank for rank, folder in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: next((ranks[f] for f in LONGEST_FIRST if item.nodeid.startswith(f)), len(ranks)))
    for item in items:
        item.add_marker(pytest.mark.xdist_group(group_of(item)))
