"""The pieces that every section of the HTML report is put together from."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

from trimaran.benchmarks.report.html_script import SCRIPT, policy
from trimaran.benchmarks.report.html_style import STYLE
from trimaran.benchmarks.report.html_tables import scrolling


def figure(title: str, drawing: str) -> str:
    return f"<figure><h3>{escape(title)}</h3>{drawing}</figure>"


def panels(drawings: Iterable[str], *, one: bool = False) -> str:
    return f'<div class="panels{" one" if one else ""}">{joined(drawings)}</div>'


def numbers(what: str, content: str) -> str:
    """The table behind a picture, for those who cannot see it or want the digits."""
    return f"<details><summary>The {escape(what)} as a table</summary>{scrolling(content, what)}</details>"


def legend(entries: Iterable[tuple[str, str]]) -> str:
    """(drawing of a swatch, words), in the order of the picture."""
    items = "".join(
        f'<li><svg viewBox="0 0 34 10" aria-hidden="true">{swatch}</svg>{escape(words)}</li>'
        for swatch, words in entries
    )
    return f'<ul class="legend">{items}</ul>'


def unbroken(sentence: str) -> str:
    """Escaped, and with no line break inside 1e-5 or 2.58–2.66."""
    whole = re.sub(r"(?<=\de)-(?=\d)", "\N{NON-BREAKING HYPHEN}", sentence)
    return escape(re.sub(r"(?<=\d)–(?=\d)", "\N{WORD JOINER}–\N{WORD JOINER}", whole))


def joined(parts: Iterable[str]) -> str:
    return "\n".join(part for part in parts if part)


def page(title: str, sections: Iterable[str]) -> str:
    """One self-contained file that asks nothing of any network."""
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy())}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n<main>\n{joined(sections)}\n</main>\n"
        f"<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )
