"""A whitening from a corpus: chunks add up to the whole, and what the corpus cannot tell is refused."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from tests import answers
from tests.export import zoo
from tests.export.exported import LONG, QUIET, answering, exported, reference_of
from trimaran.core.corpus import shipped_texts
from trimaran.core.errors import UsageError
from trimaran.export.locate import locate
from trimaran.export.whiten import Moments, kernel_of, lines_of, whiten


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


def test_directions_in_which_a_corpus_does_not_vary_are_not_scaled_up() -> None:
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
