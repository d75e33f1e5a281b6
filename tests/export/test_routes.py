"""A folder with routes for queries and documents: each route is deployed as a model of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import answers
from tests.export import zoo
from tests.export.exported import LONG, answering, exported
from trimaran.core.corpus import shipped_texts
from trimaran.core.errors import UsageError
from trimaran.export.locate import locate
from trimaran.export.routes import route_folder, split_source

TEXTS = ["A short one.", "", " ".join(shipped_texts("judging")[:9]), *shipped_texts("judging")[:5]]


@pytest.fixture(scope="module")
def routed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A folder as sentence-transformers saves it, and the model: two families, two poolings, one prompt."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Normalize, Pooling, Router, Transformer

    folder = tmp_path_factory.mktemp("routes")
    for route, family in (("query", "distilbert"), ("document", "bert")):
        zoo.saved_model(folder / route, family, "embedding")
    routes = {
        f"{route}_modules": [Transformer(str(folder / route), max_seq_length=64), Pooling(32, pooling_mode=mode)]
        for route, mode in (("query", "cls"), ("document", "mean"))
    }
    modules = [Router.for_query_document(**routes), Normalize()]
    model = SentenceTransformer(modules=modules, device="cpu", prompts={"query": "search for this: "})
    model.save(str(folder / "routed"))
    return folder / "routed", model


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMARAN_HOME", str(tmp_path / "home"))


def test_a_folder_with_routes_is_refused_with_what_to_type(routed: tuple[Path, Any]) -> None:
    folder, _ = routed
    with pytest.raises(UsageError, match="routes query and document through networks of their own") as refused:
        locate(str(folder))
    assert refused.value.hint == (
        f"Deploy each route as a model of its own: -m '{folder}#query' and -m '{folder}#document'."
    )


def test_a_route_that_is_not_there_is_refused_with_those_that_are(routed: tuple[Path, Any], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no route 'title'") as refused:
        locate(f"{routed[0]}#title")
    assert refused.value.hint == "Its routes: query, document."
    (tmp_path / "modules.json").write_text("[]")
    with pytest.raises(UsageError, match="has no routes: it is one model"):
        route_folder(tmp_path, "query")


@pytest.mark.slow
@pytest.mark.parametrize("route", ["query", "document"])
def test_a_route_answers_as_sentence_transformers_does(routed: tuple[Path, Any], tmp_path: Path, route: str) -> None:
    folder, model = routed
    before = {path: path.read_bytes() for path in folder.rglob("*.json")}
    ref = locate(f"{folder}#{route}")
    assert ref.name == f"routed-{route}"
    served = answering(exported(ref, tmp_path, profile=LONG))
    wanted = {"query": model.encode_query, "document": model.encode_document}[route](TEXTS)
    np.testing.assert_allclose(np.stack(answers.embeddings(served, TEXTS)), wanted, atol=1e-5)
    assert {path: path.read_bytes() for path in folder.rglob("*.json")} == before


def test_changed_files_make_another_folder(routed: tuple[Path, Any]) -> None:
    folder, _ = routed
    first = route_folder(folder, "query")
    assert route_folder(folder, "query") == first
    path = folder / "config_sentence_transformers.json"
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), "similarity_fn_name": "dot"}))
    assert route_folder(folder, "query") != first


def test_a_folder_may_have_the_sign_in_its_name(tmp_path: Path) -> None:
    (tmp_path / "a#b").mkdir()
    assert split_source(str(tmp_path / "a#b")) == (str(tmp_path / "a#b"), "")
    assert split_source("package:name#query") == ("package:name", "query")
