"""Embeddings equal those of sentence-transformers: every pooling, Dense, Normalize, cut and whitening."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import answers
from tests.export import zoo
from tests.export.exported import LONG, QUIET, answering, exported, reference_of
from trimaran.core.corpus import shipped_texts
from trimaran.core.errors import UsageError
from trimaran.core.spec import Pooling
from trimaran.export.locate import locate
from trimaran.export.whiten import Moments, kernel_of, lines_of, whiten

TEXTS = ["A short one.", "今天天气很好，我们去公园吧。 🍕", "", *shipped_texts("judging")[:6]]
MODES = {
    "mean": "mean",
    "cls": "cls",
    "max": "max",
    "mean-sqrt-length": "mean_sqrt_len_tokens",
    "weighted-mean": "weightedmean",
    "last-token": "lasttoken",
}


def sentence_model(
    folder: Path, family: str, *, mode: str = "mean", dense: bool = False, normalize: bool = True
) -> Any:
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Dense, Normalize, Pooling, Transformer

    zoo.saved_model(folder / "plain", family, "embedding")
    encoder = Transformer(str(folder / "plain"), max_seq_length=64)
    modules: list[Any] = [encoder, Pooling(32, pooling_mode=mode)]
    if dense:
        torch.manual_seed(3)
        modules.append(Dense(32, 24, activation_function=torch.nn.Tanh()))
    if normalize:
        modules.append(Normalize())
    model = SentenceTransformer(modules=modules, device="cpu")
    model.save(str(folder / "sentence"))
    return model


@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta"])
@pytest.mark.parametrize("mode", MODES)
def test_a_sentence_transformers_folder_gives_its_own_embeddings(tmp_path: Path, family: str, mode: str) -> None:
    model = sentence_model(tmp_path, family, mode=MODES[mode], dense=mode == "mean", normalize=mode != "max")
    ref = locate(str(tmp_path / "sentence"))
    assert ref.pooling is not None
    assert ref.pooling.mode == mode
    graph = exported(ref, tmp_path, profile=LONG)
    found = np.stack(answers.embeddings(answering(graph), TEXTS))
    np.testing.assert_allclose(found, model.encode(TEXTS), atol=1e-5)


def test_matryoshka_cut_is_that_of_sentence_transformers(tmp_path: Path) -> None:
    model = sentence_model(tmp_path, "bert")
    ref = locate(str(tmp_path / "sentence"), pooling_changes={"dimensions": 12})
    graph = exported(ref, tmp_path, profile=LONG)
    found = np.stack(answers.embeddings(answering(graph), TEXTS))
    assert found.shape[1] == 12
    np.testing.assert_allclose(found, model.encode(TEXTS, truncate_dim=12, normalize_embeddings=True), atol=1e-5)


@pytest.mark.parametrize("layers", [(-2,), (0,), (-1, -2, 1)])
@pytest.mark.parametrize("family", ["bert", "xlnet", "t5"])
def test_any_layer_or_the_mean_of_several(tmp_path: Path, family: str, layers: tuple[int, ...]) -> None:
    import torch
    import transformers

    folder = zoo.saved_model(tmp_path / "model", family, "embedding")
    pooling = Pooling(layers=layers, normalize=False)
    graph = exported(locate(str(folder), task_name="embedding", pooling=pooling), tmp_path, profile=LONG)
    served = answering(graph)
    name = "T5EncoderModel" if family == "t5" else "AutoModel"
    model = getattr(transformers, name).from_pretrained(folder).eval()
    for text in TEXTS[:3]:
        inputs = {
            key: torch.from_numpy(value) for key, value in served.encoder.batch(served.encoder.rows([text])).items()
        }
        with torch.inference_mode():
            states = model(**inputs, output_hidden_states=True).hidden_states
        wanted = torch.stack([states[layer] for layer in layers]).mean(0).mean(1)[0].numpy()
        np.testing.assert_allclose(answers.embeddings(served, [text])[0], wanted, atol=1e-5)


def test_whitening_makes_the_corpus_uncorrelated_inside_the_graph(tmp_path: Path) -> None:
    folder = zoo.saved_model(tmp_path / "model", "bert", "embedding")
    corpus = tmp_path / "texts.txt"
    texts = [text.replace("\n", " ") for text in shipped_texts("calibration")]
    corpus.write_text("\n".join(texts), encoding="utf-8")
    plain = reference_of(locate(str(folder)), tmp_path, profile=LONG)
    path = whiten(plain, lines_of(corpus), tmp_path / "white.safetensors", dimensions=16, progress=QUIET)
    ref = locate(str(folder), pooling_changes={"whitening": str(path), "normalize": False})
    found = np.stack(answers.embeddings(answering(exported(ref, tmp_path, profile=LONG)), texts))
    assert found.shape[1] == 16
    # What is left is fp32 itself: seen 3e-7 and 1.4e-7.
    np.testing.assert_allclose(found.mean(0), 0, atol=2e-6)
    np.testing.assert_allclose(np.cov(found.T, bias=True), np.eye(16), atol=2e-6)
    changed = locate(str(folder))
    assert changed.digest != ref.digest


def test_moments_of_chunks_are_those_of_the_whole() -> None:
    rows = np.random.default_rng(0).normal(3.0, 2.0, (1000, 8)) @ np.random.default_rng(1).normal(size=(8, 8))
    moments = Moments(8)
    for begin in range(0, 1000, 77):
        moments.add(rows[begin : begin + 77])
    np.testing.assert_allclose(moments.mean, rows.mean(0))
    np.testing.assert_allclose(moments.covariance, np.cov(rows.T, bias=True))
    white = (rows - moments.mean) @ kernel_of(moments, 3)
    np.testing.assert_allclose(np.cov(white.T, bias=True), np.eye(3), atol=1e-6)


def test_directions_in_which_a_corpus_does_not_vary_are_not_blown_up() -> None:
    flat = np.random.default_rng(0).normal(size=(500, 7)) @ np.random.default_rng(1).normal(size=(7, 8))
    moments = Moments(8)
    moments.add(flat)
    assert kernel_of(moments, 7).shape == (8, 7)
    for dimensions in (8, None):
        with pytest.raises(UsageError, match=r"vary in 7 directions, fewer than the 8.*--dimensions 7"):
            kernel_of(moments, dimensions)


def test_moments_take_no_more_memory_for_more_vectors() -> None:
    moments, chunk = Moments(64), np.ones((256, 64), np.float32)
    moments.add(chunk)
    tracemalloc.start()
    for _ in range(50):
        moments.add(chunk)
    left, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert left < 100_000


def test_too_few_texts_for_a_whitening_are_refused(tmp_path: Path) -> None:
    folder = zoo.saved_model(tmp_path / "model", "bert", "embedding")
    plain = reference_of(locate(str(folder)), tmp_path, profile=LONG)
    with pytest.raises(UsageError, match="3 texts cannot whiten 32 numbers"):
        whiten(plain, iter(["a", "b", "c"]), tmp_path / "white.safetensors", progress=QUIET)


def test_a_layer_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    folder = zoo.saved_model(tmp_path / "model", "bert", "embedding")
    with pytest.raises(UsageError, match="There is no layer -9: the model has 2"):
        locate(str(folder), pooling_changes={"layers": (-9,)})


def test_more_dimensions_than_there_are_are_refused(tmp_path: Path) -> None:
    folder = zoo.saved_model(tmp_path / "model", "bert", "embedding")
    with pytest.raises(UsageError, match="32 numbers cannot be cut to 64"):
        locate(str(folder), pooling_changes={"dimensions": 64})


def test_two_poolings_at_once_are_refused(tmp_path: Path) -> None:
    sentence_model(tmp_path, "bert")
    config = next((tmp_path / "sentence").glob("1_Pooling/config.json"))
    config.write_text(json.dumps({"embedding_dimension": 32, "pooling_mode": ["cls", "mean"]}))
    with pytest.raises(UsageError, match="pools by cls and mean"):
        locate(str(tmp_path / "sentence"))


def test_gpt2_is_pooled_at_its_last_token(tmp_path: Path) -> None:
    folder = zoo.saved_model(tmp_path / "model", "gpt2", "embedding")
    ref = locate(str(folder))
    assert ref.pooling is not None
    assert ref.pooling.mode == "last-token"


def test_hidden_states_and_attentions_are_outputs_when_asked(tmp_path: Path) -> None:
    folder = zoo.saved_model(tmp_path / "model", "bert", "embedding")
    ref = locate(str(folder), task_name="feature-extraction", extras=("attentions", "hidden_states"))
    graph = exported(ref, tmp_path, profile=LONG)
    assert graph.signature.output_names == ("token_embeddings", "hidden_states", "attentions")
    served = answering(graph)
    rows = served.encoder.rows(TEXTS)
    outputs = served.outputs(rows)
    for index, row in enumerate(rows):
        size = len(row.ids)
        attention = outputs["attentions"][index][:, :, :size, :size]
        np.testing.assert_allclose(attention.sum(-1), 1.0, atol=1e-5)
        last = outputs["hidden_states"][index][-1, :size]
        np.testing.assert_allclose(last, outputs["token_embeddings"][index][:size], atol=1e-6)
