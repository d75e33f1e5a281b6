"""The page to try the gateway in a browser: one file that loads nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from pathlib import Path

_FILE = Path(__file__).with_name("page.html")
_INLINE = {
    "script-src": re.compile(rb"<script>(.*?)</script>", re.S),
    "style-src": re.compile(rb"<style>(.*?)</style>", re.S),
}


@cache
def html() -> bytes:
    return _FILE.read_bytes()


@cache
def headers() -> dict[str, str]:
    """Only the page's own script and style may run, and they may call only this gateway."""
    rules = ["default-src 'none'", "connect-src 'self'", "base-uri 'none'", "form-action 'none'"]
    for directive, pattern in _INLINE.items():
        digests = [base64.b64encode(hashlib.sha256(text).digest()).decode() for text in pattern.findall(html())]
        rules.append(" ".join([directive, *(f"'sha256-{digest}'" for digest in digests)]))
    rules.append("frame-ancestors 'none'")
    return {"content-security-policy": "; ".join(rules), "referrer-policy": "no-referrer"}
