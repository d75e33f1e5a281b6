"""The programs of examples/ do what they say, on tiny models."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import trimaran
from tests.benchmarks.scripts import scripts_in
from tests.export import zoo
from tests.tiny import tiny_artifact

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("*.py"))
TEXTS = ["the cat sat", "dog ran", "good good dog", "bad cat"]


@pytest.fixture(scope="module")
def examples() -> Iterator[Any]:
    with scripts_in(ROOT / "examples", tuple(EXAMPLES)) as scripts:
        yield scripts


@pytest.fixture
def model(tmp_path: Path) -> Any:
    return trimaran.load(tiny_artifact(tmp_path / "store").directory, store=tmp_path / "store")


def test_the_page_names_every_example() -> None:
    page = (ROOT / "examples" / "README.md").read_text()
    assert all(f"`{name}.py`" in page for name in EXAMPLES)


def test_a_search_finds_the_text_itself_first(examples: Any, model: Any) -> None:
    index = examples.semantic_search.build_index(model, TEXTS)
    found = examples.semantic_search.search(model, index, TEXTS, TEXTS[2], count=2)
    assert found[0] == (pytest.approx(1, abs=1e-5), TEXTS[2]) and len(found) == 2


def test_the_reranker_has_the_last_word(examples: Any, model: Any) -> None:
    def rerank(question: str, documents: list[str], *, top_k: int) -> list[dict[str, Any]]:
        order = sorted(range(len(documents)), key=lambda row: len(documents[row]))
        return [{"corpus_id": row, "score": 1.0} for row in order[:top_k]]

    found = examples.rerank_for_rag.best_passages(model, SimpleNamespace(rerank=rerank), TEXTS, "dog", count=2)
    assert [passage for _, passage in found] == ["dog ran", "bad cat"]


def test_a_trained_pipeline_predicts_after_pickling(examples: Any, model: Any) -> None:
    pipeline = examples.train_a_classifier.classifier_on(model).fit(TEXTS, ["cat", "dog", "dog", "cat"])
    assert pickle.loads(pickle.dumps(pipeline)).predict(["the cat", "dog"]).tolist() == ["cat", "dog"]


def test_the_program_prints_the_best_line(model: Any, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    command = [str(ROOT / "examples" / "semantic_search.py"), str(model.manifest.directory), "texts.txt", TEXTS[0]]
    done = subprocess.run([sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0] == f"1.000  {TEXTS[0]}"


def test_the_notebook_runs(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMARAN_EXAMPLE_MODEL", str(model.manifest.directory))
    notebook = json.loads((ROOT / "examples" / "first_steps.ipynb").read_text(encoding="utf-8"))
    scope: dict[str, Any] = {}
    for cell in notebook["cells"]:
        assert not cell.get("outputs"), "outputs of one machine are not committed"
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), scope)
    assert scope["nearest"] == TEXTS[2] and scope["similarities"].shape == (4, 4)


def test_names_are_marked_where_they_stand(examples: Any) -> None:
    text = "Ada lived in London."
    found = [
        {"start": 0, "end": 3, "entity_group": "PER"},
        {"start": 13, "end": 19, "entity_group": "LOC"},
    ]
    assert examples.entity_service.marked(text, found) == "[Ada](PER) lived in [London](LOC)."


@pytest.mark.slow
@pytest.mark.usefixtures("workers_here")
def test_a_classifier_is_deployed_and_gated(examples: Any, tmp_path: Path) -> None:
    trained = zoo.saved_model(tmp_path / "trained", "bert", "text-classification")
    settings: dict[str, Any] = {
        "store": tmp_path / "store",
        "candidates": ("onnxruntime-fp32",),
        "serve_check": False,
        "quick": True,
        "sequence": (1, 16, 32),
        "batch": (1, 2, 4),
    }
    assert examples.gated_classifier.deploy_and_gate(trained, tmp_path, **settings) == 0
    (tmp_path / "gates.toml").write_text("size_mb = 0.000001\n")
    assert examples.gated_classifier.deploy_and_gate(trained, tmp_path, **settings) == 4
    assert "size on disk" in (tmp_path / "gates.xml").read_text()
