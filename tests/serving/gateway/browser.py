"""A headless browser, spoken to by its own debugging protocol."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

from tests.serving.worlds import eventually

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Tab:
    """`troubles` are the errors and the blocked requests that the page caused."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._number = 0
        self.troubles: list[str] = []

    async def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": parameters})
        while True:
            message = json.loads((await self._socket.receive()).data)
            if message.get("id") == self._number:
                assert "error" not in message, message
                return dict(message["result"])
            told = message.get("params", {})
            if message.get("method") == "Runtime.exceptionThrown" or told.get("entry", {}).get("level") == "error":
                self.troubles.append(json.dumps(told))

    async def evaluate(self, expression: str) -> Any:
        """The value of an expression; a promise is waited for."""
        found = await self.send("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def until(self, condition: str, *, within_ms: int = 30_000) -> None:
        wait = (
            f"new Promise((done, fail) => {{ const end = Date.now() + {within_ms}; (function look() {{"
            f" if ({condition}) done(true); else if (Date.now() > end) fail(new Error('never'));"
            " else setTimeout(look, 50);"
            " })(); })"
        )
        assert await self.evaluate(wait) is True


@contextlib.asynccontextmanager
async def tab(folder: Path) -> AsyncIterator[Tab]:
    assert BROWSER is not None
    port_file = folder / "DevToolsActivePort"
    command = [
        BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        "--remote-debugging-port=0", f"--user-data-dir={folder}", "about:blank",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        assert eventually(lambda: port_file.is_file() and port_file.read_text().count("\n") >= 1)
        port = port_file.read_text().splitlines()[0]
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json/list") as listed:
                page = next(item for item in await listed.json() if item["type"] == "page")
            async with session.ws_connect(page["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                opened = Tab(socket)
                for domain in ("Page", "Runtime", "Log"):
                    await opened.send(f"{domain}.enable")
                yield opened
    finally:
        process.terminate()
        process.wait(timeout=30)
