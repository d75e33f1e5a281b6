"""The page of `trimaran look` in a real browser: readable, usable by keyboard, and it loads nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.report.test_html_in_browser import CONTRAST, SIDEWAYS, in_browser, show
from tests.serving.gateway.browser import BROWSER, Tab
from trimaran.pipeline.look.look import Look
from trimaran.pipeline.look.page import render_look

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium is installed")

WORDS = "document.getElementById('attention-words').textContent"
LINES = "document.querySelectorAll('#attention-view path').length"
# The painted share of the squares: none would mean that a picture stayed empty.
PAINTED = """(canvas => {
  const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  return pixels.filter((value, index) => index % 4 === 3 && value > 0).length / (canvas.width * canvas.height);
})"""


async def press(page: Tab, key: str) -> None:
    for kind in ("keyDown", "keyUp"):
        await page.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=_CODES[key])


_CODES = {"ArrowRight": 39, "ArrowDown": 40, "Tab": 9}


def test_a_look_is_readable_in_light_and_dark_on_a_wide_and_a_narrow_screen(tmp_path: Path, seen: Look) -> None:
    async def look(page: Tab, path: Path) -> None:
        for width, scheme in ((400, "light"), (400, "dark"), (1280, "light"), (1280, "dark")):
            await show(page, path, width=width, scheme=scheme)
            assert await page.evaluate(SIDEWAYS) <= 0, f"scrolls sideways at {width} px"
            assert await page.evaluate(CONTRAST) == [], f"too faint in {scheme}"
            assert await page.evaluate(f"{PAINTED}(document.querySelector('#similarity-view canvas'))") > 0
            assert await page.evaluate(f"{PAINTED}(document.querySelector('#overview canvas'))") > 0
        assert await page.evaluate("performance.getEntriesByType('resource').length") == 0
        assert await page.evaluate("document.querySelectorAll('b').length") == await page.evaluate(
            "[...document.querySelectorAll('b')].filter(b => b.className === 'letter' || b.closest('p')).length"
        ), "markup in a text stays text"

    in_browser(tmp_path, render_look(seen), look)


def test_layers_heads_and_tokens_are_chosen_by_keyboard(tmp_path: Path, seen: Look) -> None:
    layers, heads = seen.subject.ref.layers, seen.subject.ref.heads

    async def look(page: Tab, path: Path) -> None:
        # A page without the focus gets no event when one of its elements does.
        await page.send("Emulation.setFocusEmulationEnabled", enabled=True)
        await show(page, path, width=1280)
        assert await page.evaluate("document.querySelectorAll('#overview button').length") == layers * heads
        every = await page.evaluate(LINES)
        assert every > 0
        await page.evaluate("document.querySelector('#attention-view .from button').focus()")
        assert "“[CLS]” attends to" in await page.evaluate(WORDS)
        assert 0 < await page.evaluate(LINES) <= every
        await page.evaluate("document.querySelector('#overview button').focus()")
        for key in ("ArrowRight", "ArrowDown"):
            await press(page, key)
        assert await page.evaluate("document.activeElement.ariaLabel") == "layer 2, head 2"
        await page.evaluate("document.activeElement.click()")
        assert await page.evaluate(WORDS) == "Layer 2, head 2."
        await page.evaluate("document.querySelector('#similarity-view button').focus()")
        assert "Most like “[CLS]”" in await page.evaluate("document.getElementById('similarity-words').textContent")

    in_browser(tmp_path, render_look(seen), look)


def test_the_second_text_is_shown_with_its_own_tokens(tmp_path: Path, seen: Look) -> None:
    async def look(page: Tab, path: Path) -> None:
        await show(page, path, width=1280)
        choose = (
            "(() => { const select = document.querySelector('#attention-controls select');"
            " select.value = 1; select.dispatchEvent(new Event('change')); })()"
        )
        await page.evaluate(choose)
        tokens = "[...document.querySelectorAll('#attention-view .from button')].map(button => button.textContent)"
        assert await page.evaluate(tokens) == list(seen.readings[1].tokens)

    in_browser(tmp_path, render_look(seen), look)
