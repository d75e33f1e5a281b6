"""Any PyTorch module is exported and proven through `--module`, an ELMo-like encoder among them."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from tests import answers
from tests.export import elmo
from tests.export.exported import LONG, QUIET, answering, exported
from trimaran.core.errors import IntegrityError, UsageError
from trimaran.core.spec import Pooling
from trimaran.core.store import Store
from trimaran.export.module import locate_module
from trimaran.quantize.optimize import optimize

TEXTS = ["One.", "今天 🍕", "", "A rather longer text about parks, weather and trains in the rain."]


def test_an_elmo_like_encoder_gives_its_embeddings(tmp_path: Path) -> None:
    import torch

    graph = exported(locate_module("tests.export.elmo:build"), tmp_path, profile=LONG)
    assert (graph.family, graph.task) == ("module", "embedding")
    served = answering(graph)
    module, _, _ = elmo.build()
    for mine, text in zip(answers.embeddings(served, TEXTS), TEXTS, strict=True):
        inputs = served.encoder.batch(served.encoder.rows([text]))
        with torch.inference_mode():
            wanted = module(**{name: torch.from_numpy(array) for name, array in inputs.items()})[0].mean(0)
        np.testing.assert_allclose(mine, torch.nn.functional.normalize(wanted, dim=0), atol=1e-5)


def test_it_goes_on_through_the_line(tmp_path: Path) -> None:
    graph = exported(locate_module("tests.export.elmo:build"), tmp_path, profile=LONG)
    assert optimize(graph, store=Store(tmp_path / "store"), progress=QUIET).details["fused_nodes"] == {}


def test_its_token_vectors_and_other_poolings(tmp_path: Path) -> None:
    vectors = exported(locate_module("tests.export.elmo:build", task_name="feature-extraction"), tmp_path, profile=LONG)
    assert vectors.signature.outputs[0].dims == ("batch", "sequence", 32)
    cut = locate_module("tests.export.elmo:build", pooling=Pooling(mode="max", dimensions=8))
    assert exported(cut, tmp_path, profile=LONG).signature.outputs[0].dims == ("batch", 8)


def test_a_function_in_the_current_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_model.py").write_text("from tests.export.elmo import build\n")
    here = {"", str(Path.cwd())}
    with pytest.raises(UsageError, match="There is no function"):
        locate_module("my_model:build")
    # The installed command, unlike `python -m`, does not look into the current folder by itself.
    monkeypatch.setattr(
        "sys.path", [str(Path(elmo.__file__).parents[2]), *(path for path in sys.path if path not in here)]
    )
    monkeypatch.chdir(tmp_path)
    assert locate_module("my_model:build").name == "build"


@pytest.mark.parametrize(
    ("factory", "words"),
    [
        ("tests.export.elmo:missing", "There is no function"),
        ("no.such.package:build", "There is no function"),
        ("nothing", "There is no function"),
        ("tests.export.elmo:build_nothing", "must return a module, its tokenizer and"),
        ("tests.export.elmo:build_with_words", "takes words; wanted are input_ids and attention_mask"),
    ],
)
def test_a_factory_that_cannot_be_used_is_refused(factory: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        locate_module(factory)


def test_a_factory_that_builds_another_model_each_time_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match="built another model than before"):
        exported(locate_module("tests.export.elmo:build_another_each_time"), tmp_path, profile=LONG)


def test_the_running_statistics_of_a_batch_norm_are_exported(tmp_path: Path) -> None:
    graph = exported(locate_module("tests.export.elmo:build_with_batch_norm"), tmp_path, profile=LONG)
    assert graph.checks[0].holds
    assert graph.details["operators"]["BatchNormalization"] == 1
