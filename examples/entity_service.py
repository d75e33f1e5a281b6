"""Marks the names in lines of text by asking a gateway: `python examples/entity_service.py URL names < texts.txt`.

The gateway is that of `trimaran up ./my-ner`, or `trimaran gateway` with a key in $TRIMARAN_KEY.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import urllib.request
from collections.abc import Sequence
from typing import Any


def entities(url: str, model: str, texts: Sequence[str], *, key: str = "") -> list[list[dict[str, Any]]]:
    """For each text its names: word, kind, score, and where it stands."""
    headers = {"content-type": "application/json", **({"authorization": f"Bearer {key}"} if key else {})}
    body = json.dumps({"model": model, "inputs": list(texts)}).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{url}/entities", body, headers), timeout=60) as reply:  # noqa: S310
        return list(json.load(reply)["results"])


def marked(text: str, found: Sequence[dict[str, Any]]) -> str:
    """The text with each name in brackets after which stands its kind: `[Ada](PER) lived in [London](LOC).`"""
    for entity in sorted(found, key=lambda entity: -entity["start"]):
        start, end = entity["start"], entity["end"]
        kind = entity.get("entity_group") or entity.get("entity")
        text = f"{text[:start]}[{text[start:end]}]({kind}){text[end:]}"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="such as http://127.0.0.1:8080")
    parser.add_argument("model")
    arguments = parser.parse_args()
    texts = [line.rstrip("\n") for line in sys.stdin if line.strip()]
    found = entities(arguments.url, arguments.model, texts, key=os.environ.get("TRIMARAN_KEY", ""))
    for text, names in zip(texts, found, strict=True):
        print(marked(text, names))


if __name__ == "__main__":
    main()
