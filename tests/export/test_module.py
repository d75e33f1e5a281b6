"""Any PyTorch module is exported and proven through `--module`, an ELMo-like encoder among them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import answers
from tests.export import elmo, zoo
from tests.export.exported import LONG, QUIET, answering, exported, reference_of
from trimaran.core.corpus import shipped_texts
from trimaran.core.errors import IntegrityError, ParityError, UsageError
from trimaran.core.spec import Pooling, Range, ShapeProfile
from trimaran.core.store import Store
from trimaran.core.tasks import gates_for
from trimaran.export.module import locate_module
from trimaran.judging.judgement import UNPADDED
from trimaran.judging.quality import assess, reference_answers
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


def build_lstm() -> tuple[Any, Any, Any]:
    """A plain BiLSTM: its backward half begins with padding."""
    import torch

    class Plain(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(zoo.VOCABULARY, 16)
            self.lstm = torch.nn.LSTM(16, 8, batch_first=True, bidirectional=True)

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            return self.lstm(self.table(input_ids))[0]

    torch.manual_seed(0)
    example = {"input_ids": torch.tensor([[2, 9, 9, 3]]), "attention_mask": torch.ones(1, 4, dtype=torch.int64)}
    return Plain(), zoo.tokenizer_of("wordpiece"), example


def build_convbert() -> tuple[Any, Any, Any]:
    """Its convolutions read the places beside a token, padding as well, so as a family it is refused."""
    import torch
    import transformers

    class TokenVectors(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            sizes = {"hidden_size": 32, "embedding_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
            config = transformers.ConvBertConfig(
                vocab_size=zoo.VOCABULARY, intermediate_size=64, max_position_embeddings=64, **sizes
            )
            self.model = transformers.ConvBertModel(config)

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            mask = (1 - attention_mask[:, None, None, :].float()) * torch.finfo(torch.float32).min
            return self.model(input_ids=input_ids, attention_mask=mask).last_hidden_state

    torch.manual_seed(0)
    _, tokenizer, example = build_lstm()
    return TokenVectors(), tokenizer, example


@pytest.mark.slow
@pytest.mark.parametrize("factory", ["build_lstm", "build_convbert"])
def test_a_module_that_reads_padding_is_proven_and_judged_in_rows_of_equal_length(tmp_path: Path, factory: str) -> None:
    ref = locate_module(f"tests.export.test_module:{factory}")
    graph = exported(ref, tmp_path, profile=LONG)
    assert "pack_padded_sequence" in graph.details[UNPADDED] and "equal length" in graph.details[UNPADDED]
    assert [check.name for check in graph.checks][1] == "max |Δ| alone to in a batch of equal length"
    texts = shipped_texts("judging")[:24]
    wanted = reference_answers(reference_of(ref, tmp_path, profile=LONG), texts, threads=1)
    quality = assess(graph, wanted, texts, gates=gates_for("embedding", "exact", {}), threads=1)
    assert quality.rows == "equal-length" and quality.holds


def test_a_module_that_reads_padding_is_refused_where_short_texts_would_be_padded(tmp_path: Path) -> None:
    padded = ShapeProfile(batch=LONG.batch, sequence=Range(minimum=8, typical=16, maximum=64))
    with pytest.raises(ParityError, match="itself when padded more") as refused:
        exported(locate_module("tests.export.test_module:build_lstm"), tmp_path, profile=padded)
    assert "pack_padded_sequence" in refused.value.hint


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
