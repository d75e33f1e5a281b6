"""Examples that need served models of several tasks, and docs/gateway.md, which knows every path and option."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import trimaran as library
from tests.benchmarks.scripts import scripts_in
from tests.commands import trimaran
from tests.serving.gateway.conftest import Tasks
from trimaran.serving.gateway.routes import ROUTES

DOCS = Path(__file__).parents[3] / "docs"
EXAMPLES = DOCS.with_name("examples")


def test_the_examples_for_clients_run(tasks: Tasks) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "clients.md").read_text(encoding="utf-8"), re.S)
    assert len(blocks) == 3
    for block in blocks:
        found: dict[str, object] = {"address": tasks.server.grpc_url}
        exec(block, found)
        vectors = found.get("vectors", found.get("first"))
        assert isinstance(vectors, np.ndarray) and np.isfinite(vectors).all()


def test_the_program_of_the_ner_example_marks_names_that_a_gateway_finds(
    tasks: Tasks, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "the cat sat"
    monkeypatch.setattr(sys, "argv", ["entity_service.py", tasks.gateway.url, "token-classification"])
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{text}\n\n"))
    monkeypatch.setenv("TRIMARAN_KEY", tasks.gateway.key)
    with scripts_in(EXAMPLES, ("entity_service",)) as examples:
        examples.entity_service.main()
    (line,) = capsys.readouterr().out.splitlines()
    assert re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", line) == text != line, "only brackets and kinds are added"


def test_the_rag_example_takes_a_real_reranker(tasks: Tasks) -> None:
    embedder, reranker = (library.load(tasks.artifacts[task].directory) for task in ("embedding", "rerank"))
    passages = ["the cat sat", "dog ran", "bad cat"]
    with embedder, reranker, scripts_in(EXAMPLES, ("rerank_for_rag",)) as examples:
        best = examples.rerank_for_rag.best_passages(embedder, reranker, passages, "cat", candidates=2, count=1)
        nearest = embedder.similarity(embedder.encode(["cat"]), embedder.encode(passages))[0].argsort(descending=True)
        ranked = reranker.rerank("cat", [passages[row] for row in nearest[:2]], return_documents=True)
    assert best == [(ranked[0]["score"], ranked[0]["text"])]


def test_every_path_and_option_of_the_gateway_is_in_the_docs(tmp_path: Path) -> None:
    text = (DOCS / "gateway.md").read_text(encoding="utf-8")
    missing = [path for path in (*ROUTES, "/metrics", "/openapi.json") if path not in text]
    assert not missing
    options = set(re.findall(r"--[a-z][a-z-]+", trimaran("gateway", "--help", home=tmp_path).stdout))
    known_elsewhere = {
        "--help",
        "--json",
        "--url",
        "--protocol",
        "--host",
        "--port",
        "--access-log",
        "--canary-interval",
    }
    assert not {option for option in options if option not in text} - known_elsewhere
