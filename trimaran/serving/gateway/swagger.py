"""Swagger's page of the gateway's paths. Its files come from the package swagger-ui-py, none from elsewhere."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from typing import NamedTuple

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Trimaran gateway: every path</title>
<link rel="stylesheet" href="docs/swagger-ui.css">
</head>
<body>
<div id="paths"></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</body>
</html>
"""
_START = 'SwaggerUIBundle({url: "openapi.json", dom_id: "#paths", deepLinking: true, validatorUrl: null});\n'
_FILES = {"swagger-ui.css": "text/css", "swagger-ui-bundle.js": "text/javascript"}
# Swagger sets styles inline and draws its icons from data URLs.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {"content-security-policy": _POLICY, "referrer-policy": "no-referrer"}


class Page(NamedTuple):
    content: bytes
    media_type: str


@cache
def pages() -> dict[str, Page]:
    """The pages by path; none where the package is not installed."""
    spec = importlib.util.find_spec("swagger_ui")
    folders = [Path(location) / "static" for location in (spec.submodule_search_locations or ())] if spec else []
    folder = next((folder for folder in folders if all((folder / name).is_file() for name in _FILES)), None)
    if folder is None:
        return {}
    return {
        "/docs": Page(_PAGE.encode(), "text/html"),
        "/docs/start.js": Page(_START.encode(), "text/javascript"),
        **{f"/docs/{name}": Page((folder / name).read_bytes(), kind) for name, kind in _FILES.items()},
    }
