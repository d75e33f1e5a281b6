"""The documentation site builds without a broken link, loads nothing from elsewhere, and its commands exist."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.environments import ROOT, python_of
from tests.pipeline.test_ci_files import commands_of, require_known

PAGES = sorted([ROOT / "docs" / "index.md", *(ROOT / "docs" / "how").glob("*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_of_a_page_exists(page: Path) -> None:
    blocks = re.findall(r"```\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    for words in commands_of(re.sub(r"\s+#.*|\s+\| .*", "", "\n".join(blocks))):
        require_known(words)


@pytest.mark.slow
def test_the_site_builds_with_every_link_checked(tmp_path: Path) -> None:
    mkdocs = python_of("docs").with_name("mkdocs")
    done = subprocess.run(
        [str(mkdocs), "build", "--strict", "-q", "-d", str(tmp_path / "site")],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    start = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    loaded = re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=\"(https?://[^\"]+)", start)
    assert not [url for url in loaded if "canonical" not in url]
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")}
    assert all(f'href="{page}.html"' in start for page in pages - {"index"}), "the navigation has every page"
    assert "trimaran.pipeline.api.load" in (tmp_path / "site" / "api.html").read_text(encoding="utf-8")
