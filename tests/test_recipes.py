"""The recipes for other libraries do what they say: LangChain, LlamaIndex, Haystack, scikit-learn, Ray Serve."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks.scripts import scripts_in
from tests.environments import ROOT, run_in
from tests.serving.worlds import by_hand
from tests.tiny import tiny_artifact
from trimaran.model_repository.layout import lay_out

TEXTS = ["the cat sat", "dog ran", "good good dog", "bad cat"]


@pytest.mark.slow
def test_frameworks_find_a_text_by_itself(tmp_path: Path) -> None:
    folder = tiny_artifact(tmp_path / "store").directory
    script = ROOT / "tests" / "environments" / "in_recipes.py"
    said = run_in("recipes", script, str(folder), str(tmp_path / "store"), PYTHONPATH=str(ROOT))
    found = json.loads(said.splitlines()[-1])
    nearest, first = found.pop("haystack")
    assert {**found, "haystack": nearest} == dict.fromkeys(("langchain", "llama_index", "haystack"), TEXTS[2])
    assert len(first) < len(TEXTS[2]), "the ranker's order counts"


@pytest.mark.slow
def test_ray_serve_answers_callers_together_and_goes_on_after_a_replica_was_killed(tmp_path: Path) -> None:
    lay_out(tiny_artifact(tmp_path / "store"), repository=tmp_path / "r", name="m", rows="alone", threads=1)
    script = ROOT / "tests" / "environments" / "in_ray_serve.py"
    home = str(tmp_path / "home")
    said = run_in("ray-serve", script, str(tmp_path / "r"), "m", PYTHONPATH=str(ROOT), TRIMARAN_HOME=home)
    found = json.loads(said.splitlines()[-1])
    assert found.pop("replicas") == 2
    assert set(found) == {"list", "together", "after a kill"}
    for vectors in found.values():
        np.testing.assert_allclose(vectors, by_hand(TEXTS), atol=1e-5)


def test_a_scikit_learn_pipeline_trains_clones_and_pickles(tmp_path: Path) -> None:
    from sklearn.base import clone
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    artifact = tiny_artifact(tmp_path / "store")
    with scripts_in(ROOT / "examples" / "recipes", ("sklearn_vectors",)) as recipes:
        vectors = recipes.sklearn_vectors.TextVectors(str(artifact.directory))
        pipeline = clone(make_pipeline(vectors, LogisticRegression())).fit(TEXTS, ["cat", "dog", "dog", "cat"])
        again = pickle.loads(pickle.dumps(pipeline))
        assert again.predict(["the cat", "dog"]).tolist() == ["cat", "dog"]
        np.testing.assert_array_equal(again[:-1].transform(TEXTS), pipeline[:-1].transform(TEXTS))
        assert len(pipeline[0].get_feature_names_out()) == pipeline[0].transform(TEXTS).shape[1]
