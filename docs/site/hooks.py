"""Makes the pages of docs/ a site: links to files of the repository work, and the decisions have a list."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
# A link out of docs/: to a file, which becomes part of the site, or to a folder or page, which stays a name.
_OUTSIDE = re.compile(r"(!?)\[([^\]]*)\]\((?:\.\./)+([^)#]+)\)")


def on_config(config: Any) -> Any:
    """A page that nobody put into the navigation stands at its end, so that none is lost."""
    named = str(config.nav)
    if others := [path.name for path in sorted((ROOT / "docs").glob("*.md")) if path.name not in named]:
        config.nav.append({"More": others})
    return config


def on_files(files: Files, config: Any) -> Files:
    for page in list(files.documentation_pages()):
        for _, _, path in _OUTSIDE.findall(page.content_string):
            if _is_shown(path) and files.get_file_from_path(path) is None:
                files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    files.append(File.generated(config, "decisions/index.md", content=_decisions()))
    return files


def on_page_markdown(markdown: str, page: Any, **more: Any) -> str:
    depth = page.file.src_uri.count("/")

    def inside(match: re.Match[str]) -> str:
        mark, text, path = match.groups()
        if _is_shown(path):
            return f"{mark}[{text}]({'../' * depth}{path})"
        return f"{text} (`{path}`)"

    return _OUTSIDE.sub(inside, markdown).replace("](decisions/)", "](decisions/index.md)")


def _is_shown(path: str) -> bool:
    """Pictures, programs and data. A page of its own would have links of its own."""
    return (ROOT / path).is_file() and not path.endswith(".md")


def _decisions() -> str:
    """One line for each decision: its number and its title."""
    lines = ["# Decisions", "Why things are as they are, half a page each.", ""]
    for path in sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md")):
        title = path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        lines.append(f"- [{title}]({path.name})")
    return "\n".join(lines) + "\n"
