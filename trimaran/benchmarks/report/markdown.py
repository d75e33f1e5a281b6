"""GitHub-flavoured Markdown: tables, and text that means nothing but itself."""

from __future__ import annotations

from collections.abc import Sequence

_ESCAPES = str.maketrans({"<": "&lt;", ">": "&gt;", **{mark: f"\\{mark}" for mark in ("\\", "|", "`", "*", "_", "[")}})


def markdown_line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, left: int | None = None) -> list[str]:
    """Lines of a table. The first `left` columns are aligned to the left, the others to the right; None is all left."""
    left = len(heads) if left is None else left
    rule = ["---"] * left + ["---:"] * (len(heads) - left)
    return [markdown_line(heads), markdown_line(rule), *map(markdown_line, rows)]


def markdown_text(text: str) -> str:
    return " ".join(text.translate(_ESCAPES).split())


def markdown_code(text: str) -> str:
    """For the inside of `backticks` in a table."""
    return " ".join(text.replace("`", "'").replace("|", "\\|").split())
