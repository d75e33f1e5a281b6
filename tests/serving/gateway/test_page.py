"""The page to try it: works in a real browser, with nothing from elsewhere."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import numpy as np
import pytest

from tests.serving.gateway.browser import BROWSER, tab
from tests.serving.gateway.conftest import Tasks
from tests.serving.gateway.worlds import Running
from tests.serving.worlds import by_hand
from trimaran.serving.gateway.routes import ROUTES

needs_browser = pytest.mark.skipif(BROWSER is None, reason="no chromium is installed")


def test_the_page_names_nothing_from_elsewhere(running: Running) -> None:
    found = running.ask("/", key="")
    text = found.body.decode()
    assert not re.findall(r"https?://", text)
    assert not re.findall(r"(?:src|href)=\"(?!openapi\.json|docs\")", text)
    policy = found.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy


@needs_browser
def test_a_person_with_a_key_gets_an_answer_in_a_browser(running: Running, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with tab(tmp_path) as page:
            await page.send("Page.navigate", url=f"{running.url}/")
            await page.until("document.querySelectorAll('details').length > 0")
            assert await page.evaluate("document.querySelectorAll('details').length") == len(ROUTES) + 1
            assert await page.evaluate("document.getElementById('key-row').hidden") is False
            await submit(page, "v1_models", None)
            assert (await said(page, "v1_models"))[0].startswith("401 ")
            await page.evaluate(f"document.getElementById('key').value = {json.dumps(running.key)}")
            await submit(page, "v1_embeddings", {"model": "vectors", "input": ["the cat"]})
            status, answer = await said(page, "v1_embeddings")
            assert status.startswith("200 ")
            np.testing.assert_allclose(json.loads(answer)["data"][0]["embedding"], by_hand(["the cat"])[0], atol=1e-6)
            asked = await page.evaluate("performance.getEntriesByType('resource').map(entry => entry.name)")
            assert asked and all(name.startswith(running.url) for name in asked)
            assert await page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
            troubles = [trouble for trouble in page.troubles if "401" not in trouble and "favicon" not in trouble]
            assert not troubles

    asyncio.run(scenario())


@needs_browser
def test_the_page_offers_what_the_models_do(tasks: Tasks, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with tab(tmp_path) as page:
            await page.send("Page.navigate", url=f"{tasks.gateway.url}/")
            await page.until("document.querySelectorAll('details').length > 0")
            await page.evaluate(f"document.getElementById('key').value = {json.dumps(tasks.gateway.key)}")
            await page.evaluate("document.getElementById('key').dispatchEvent(new Event('change'))")
            await page.until("document.querySelectorAll('#models li').length > 0")
            assert await page.evaluate("document.querySelectorAll('#models li').length") == len(tasks.artifacts)
            await page.evaluate("document.querySelector('#similarity button').click()")
            await page.until("document.getElementById('cosine').textContent.startsWith('Cosine ')")
            await page.evaluate("document.getElementById('info').open = true")
            await page.until("document.querySelector('#info .curl').textContent !== ''")
            line = await page.evaluate("document.querySelector('#info .curl').textContent")
            assert line == f'curl -s {tasks.gateway.url}/info -H "authorization: Bearer $KEY"'
            vector = json.dumps({"embedding": [0.5] * 100})
            shown = await page.evaluate(f"pretty({json.dumps(vector)}, false)")
            assert json.loads(shown) == {"embedding": [0.5] * 4 + ["… 96 more"]}

    asyncio.run(scenario())


def test_swaggers_page_loads_nothing_from_elsewhere(running: Running) -> None:
    pytest.importorskip("swagger_ui")
    found = running.ask("/docs", key="")
    assert found.status == 200 and "default-src 'none'" in found.headers["content-security-policy"]
    names = re.findall(r"(?:src|href)=\"([^\"]+)\"", found.body.decode())
    assert len(names) == 3
    for name in names:
        assert running.ask(f"/{name}", key="").status == 200


async def submit(page: object, section: str, body: object) -> None:
    lines = [f"const section = document.getElementById('{section}');", "section.open = true;"]
    if body is not None:
        lines.append(f"section.querySelector('textarea').value = {json.dumps(json.dumps(body))};")
    lines.append("section.querySelector('button').click();")
    await page.evaluate(f"(() => {{ {' '.join(lines)} }})()")  # type: ignore[attr-defined]


async def said(page: object, section: str) -> tuple[str, str]:
    place = f"document.querySelector('#{section} "
    await page.until(f"{place}.status').textContent !== ''")  # type: ignore[attr-defined]
    status = await page.evaluate(f"{place}.status').textContent")  # type: ignore[attr-defined]
    return status, await page.evaluate(f"{place}pre').textContent")  # type: ignore[attr-defined]
