"""The HTML report in a real browser: no error, no sideways scroll, readable in light and dark, tables that sort."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.fakes import report, row
from tests.benchmarks.report_worlds import large_report, whole_report
from tests.serving.gateway.browser import BROWSER, Tab, tab
from trimaran.benchmarks.report.render_html import render_html

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium is installed")

# Each visible text against what is painted behind it, by the formula of WCAG 2. Text in a picture has the card behind
# it, or a heat map's cell. 3 is enough for large text; disabled things do not occur.
CONTRAST = """(() => {
  const rgb = text => (text.match(/[\\d.]+/g) || [0, 0, 0, 0]).map(Number);
  const over = (top, under, alpha) => under.map((value, i) => value + (top[i] - value) * alpha);
  const light = colour => {
    const [r, g, b] = colour.map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = element => {
    for (let at = element; at; at = at.parentElement) {
      const found = rgb(getComputedStyle(at).backgroundColor);
      if (found.length === 3 || found[3] > 0) return found.slice(0, 3);
    }
    return [255, 255, 255];
  };
  const faint = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim());
    if (!own || !element.getClientRects().length || ["SCRIPT", "STYLE", "title"].includes(element.tagName)) continue;
    const style = getComputedStyle(element), drawn = element instanceof SVGElement;
    let back = behind(drawn ? element.closest("figure, li") : element);
    const heat = element.parentElement.querySelector(":scope > .heat");
    if (heat) back = over(rgb(getComputedStyle(heat).fill), back, Number(heat.getAttribute("fill-opacity")));
    const [a, b] = [light(rgb(drawn ? style.fill : style.color).slice(0, 3)), light(back)];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700);
    if (ratio < (large ? 3 : 4.5)) faint.push(`${element.textContent.trim().slice(0, 30)} ${ratio.toFixed(2)}`);
  }
  return faint;
})()"""
OPEN_ALL = "document.querySelectorAll('details').forEach(one => { one.open = true; })"
SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
# Tables that are wider than the frame they scroll in.
CUT_TABLES = (
    "[...document.querySelectorAll('.scroll')].filter(frame => frame.scrollWidth > frame.clientWidth)"
    ".map(frame => frame.ariaLabel)"
)
# Words of a plot that leave the frame of their figure.
CLIPPED = """[...document.querySelectorAll("figure")].flatMap(figure => {
  const frame = figure.getBoundingClientRect();
  return [...figure.querySelectorAll("text")].filter(text => {
    const box = text.getBoundingClientRect();
    return box.left < frame.left || box.right > frame.right || box.bottom > frame.bottom;
  }).map(text => text.textContent);
})"""
# Tables with a row that has not as many cells as there are heads.
UNEVEN = """[...document.querySelectorAll("table")].filter(table => {
  const width = row => [...row.cells].reduce((sum, cell) => sum + cell.colSpan, 0);
  return [...table.rows].some(row => width(row) !== width(table.tHead.rows[0]));
}).map(table => table.closest(".scroll").ariaLabel)"""
FIRST_COLUMN = (
    "[...document.querySelector('table').tBodies].map(body => body.rows[0].cells[0].firstChild.textContent.trim())"
)


async def show(page: Tab, path: Path, *, width: int = 1200, scheme: str = "light", media: str = "screen") -> None:
    await page.send(
        "Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=width < 500
    )
    await page.send(
        "Emulation.setEmulatedMedia", media=media, features=[{"name": "prefers-color-scheme", "value": scheme}]
    )
    await page.send("Page.navigate", url=path.as_uri())
    await page.until("document.readyState === 'complete'")


def in_browser(tmp_path: Path, html: str, look: Any) -> None:
    path = tmp_path / "report.html"
    path.write_text(html, encoding="utf-8")

    async def scenario() -> None:
        async with tab(tmp_path / "profile") as page:
            await look(page, path)
            assert page.troubles == []

    asyncio.run(scenario())


def test_a_report_is_readable_on_a_phone_in_the_dark_and_on_paper(tmp_path: Path) -> None:
    async def look(page: Tab, path: Path) -> None:
        for width, scheme in ((375, "light"), (375, "dark"), (1200, "light"), (1200, "dark")):
            await show(page, path, width=width, scheme=scheme)
            assert await page.evaluate(SIDEWAYS) <= 0, f"scrolls sideways at {width} px"
            await page.evaluate(OPEN_ALL)
            assert await page.evaluate(SIDEWAYS) <= 0, f"scrolls sideways at {width} px with its tables open"
            assert await page.evaluate(CONTRAST) == [], f"too faint in {scheme}"
        await show(page, path, width=794, scheme="dark", media="print")
        assert await page.evaluate(SIDEWAYS) <= 0, "cut at the right edge of the paper"
        assert await page.evaluate(CONTRAST) == [], "too faint on paper"
        paper = await page.send("Page.printToPDF")
        assert len(paper["data"]) > 20_000
        assert await page.evaluate("performance.getEntriesByType('resource').length") == 0

    in_browser(tmp_path, render_html(whole_report()), look)


def test_large_values_are_shown_whole_and_no_column_is_cut_at_1280(tmp_path: Path) -> None:
    async def look(page: Tab, path: Path) -> None:
        for width in (1280, 375):
            await show(page, path, width=width)
            assert await page.evaluate(CLIPPED) == [], f"clipped at {width} px"
        await show(page, path, width=1280)
        await page.evaluate(OPEN_ALL)
        assert await page.evaluate(CUT_TABLES) == []

    in_browser(tmp_path, render_html(large_report()), look)


def test_every_row_of_a_table_has_a_cell_for_each_head(tmp_path: Path) -> None:
    async def look(page: Tab, path: Path) -> None:
        await show(page, path)
        assert await page.evaluate(UNEVEN) == []
        assert await page.evaluate("document.querySelectorAll('table').length") > 15

    in_browser(tmp_path, render_html(whole_report()), look)


def test_tables_sort_by_a_click_and_a_missing_number_stays_last(tmp_path: Path) -> None:
    async def look(page: Tab, path: Path) -> None:
        await show(page, path)
        click = "document.querySelectorAll('table thead th')[3].querySelector('button').click()"
        await page.evaluate(click)
        assert await page.evaluate(FIRST_COLUMN) == ["eager", "eager-bf16", "slow", "quick", "wrong", "crashing"]
        await page.evaluate(click)
        assert await page.evaluate(FIRST_COLUMN) == ["wrong", "quick", "eager-bf16", "slow", "eager", "crashing"]
        sorted_by = "[...document.querySelectorAll('table')[0].querySelectorAll('[aria-sort]')].map(h => h.ariaSort)"
        assert await page.evaluate(sorted_by) == ["descending"]
        reason = "document.querySelector('table tbody tr.reason').textContent"
        assert "below its limit" in await page.evaluate(reason), "a reason moves with its candidate"

    in_browser(tmp_path, render_html(whole_report()), look)


def test_a_report_of_failures_alone_shows_no_error_either(tmp_path: Path) -> None:
    async def look(page: Tab, path: Path) -> None:
        await show(page, path, width=375)
        assert await page.evaluate(SIDEWAYS) <= 0
        assert "nothing to deploy" in await page.evaluate("document.body.innerText")

    in_browser(tmp_path, render_html(report([row("wrong", neighbour_overlap=0.2)], {"wrong": 2.0})), look)
