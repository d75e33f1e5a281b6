"""Pages from Jinja2 templates: one self-contained file each, with its own style, its own script and a strict policy."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).parent / "templates"


def render_page(
    template: str, *, title: str, folder: Path = TEMPLATES, more_script: str = "", more_style: str = "", **facts: Any
) -> str:
    """Fills a template that extends `page.html`; everything that is not markup is escaped.

    `more_script` and `more_style` are the page's own, beside those of every page.
    """
    script = asset("sort.js") + more_script
    return (
        _environment(folder)
        .get_template(template)
        .render(
            title=title,
            style=Markup(asset("plots.css") + asset("page.css") + more_style),  # noqa: S704  (our own file)
            script=Markup(script),  # noqa: S704  (our own file)
            policy=policy(script),
            **facts,
        )
    )


def asset(name: str) -> str:
    """A stylesheet or script beside the templates."""
    return (TEMPLATES / name).read_text(encoding="utf-8")


def policy(script: str) -> str:
    """The page may load nothing and run nothing but this script, which is named by its digest."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


def svg_file(plot: str) -> str:
    """A plot as a file of its own, with the namespace and the style that a page would give it."""
    head = '<svg xmlns="http://www.w3.org/2000/svg" font-family="system-ui, sans-serif" '
    styled = f"<style>{asset('plots.css')}</style><title>"
    return str(plot).replace("<svg ", head, 1).replace("<title>", styled, 1) + "\n"


def unbroken(sentence: str) -> str:
    """With no line break inside 1e-5 or 2.58–2.66."""
    whole = re.sub(r"(?<=\de)-(?=\d)", "\N{NON-BREAKING HYPHEN}", sentence)
    return re.sub(r"(?<=\d)–(?=\d)", "\N{WORD JOINER}–\N{WORD JOINER}", whole)


@lru_cache
def _environment(folder: Path) -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader([folder, TEMPLATES]),
        autoescape=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.filters["unbroken"] = unbroken
    return environment
