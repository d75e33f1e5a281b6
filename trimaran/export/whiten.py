"""Computes a whitening from a corpus: the mean of its embeddings, and the kernel that makes them uncorrelated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from trimaran.core.artifact import Artifact
from trimaran.core.corpus import encoder_of
from trimaran.core.errors import UsageError
from trimaran.core.progress import Progress
from trimaran.export.reference import model_ref_of
from trimaran.runtime.text import Array, infer_rows

CHUNK = 256
# A direction with less than this share of the largest variance holds only the noise of fp32.
NOISE = 1e-10


class Moments:
    """Mean and covariance of vectors that arrive in chunks. The memory does not grow with their number."""

    def __init__(self, width: int) -> None:
        self.count = 0
        self.mean = np.zeros(width)
        self._scatter = np.zeros((width, width))

    def add(self, rows: Array) -> None:
        wide = rows.astype(np.float64)
        count, mean = len(wide), wide.mean(axis=0)
        centred, shift = wide - mean, mean - self.mean
        total = self.count + count
        self._scatter += centred.T @ centred + np.outer(shift, shift) * (self.count * count / total)
        self.mean += shift * (count / total)
        self.count = total

    @property
    def covariance(self) -> Array:
        return np.asarray(self._scatter / self.count)


def kernel_of(moments: Moments, dimensions: int | None) -> Array:
    """U · diag(1/√s) of the covariance's SVD, directions with the largest variance first.

    A direction in which the corpus does not vary is float noise, which the kernel would scale up to unit variance.
    Layer norms leave one such direction, so a whitening can rarely keep all the numbers of a vector.
    """
    vectors, strengths, _ = np.linalg.svd(moments.covariance)
    varying = int((strengths > strengths[0] * NOISE).sum())
    if (dimensions or len(strengths)) > varying:
        raise UsageError(
            f"The embeddings of the corpus vary in {varying} directions, fewer than the "
            f"{dimensions or len(strengths)} numbers that were asked for.",
            hint=f"Pass --dimensions {varying} or fewer, or a larger corpus.",
        )
    return np.asarray((vectors / np.sqrt(np.maximum(strengths, strengths[0] * NOISE)))[:, :dimensions], np.float32)


def whiten(
    parent: Artifact,
    texts: Iterable[str],
    path: Path,
    *,
    dimensions: int | None = None,
    progress: Progress,
) -> Path:
    """Writes the mean and the kernel of the reference's embeddings of `texts`, taken before any normalisation.

    Use it with `locate(..., pooling_changes={"whitening": path})`.
    """
    from safetensors.numpy import save_file

    from trimaran.export.wrappers import complete_module

    ref = model_ref_of(parent)
    if ref.pooling is None or ref.pooling.whitening:
        raise UsageError(f"Whitening is computed from plain embeddings; {ref.source} gives {ref.task}.")
    plain = ref.model_copy(update={"pooling": ref.pooling.model_copy(update={"normalize": False, "dimensions": None})})
    moments = _moments(complete_module(plain, attention="sdpa"), parent, texts, progress)
    if moments.count < len(moments.mean):
        raise UsageError(
            f"{moments.count} texts cannot whiten {len(moments.mean)} numbers; at least as many texts are wanted.",
            hint="Give a corpus of a few thousand lines.",
        )
    if dimensions is not None and not 1 <= dimensions <= len(moments.mean):
        raise UsageError(f"An embedding of {len(moments.mean)} numbers cannot be whitened to {dimensions}.")
    save_file(
        {"mean": moments.mean.astype(np.float32), "kernel": kernel_of(moments, dimensions)},
        path,
        metadata={"texts": str(moments.count), "model": ref.digest},
    )
    return path


def _moments(module: Any, parent: Artifact, texts: Iterable[str], progress: Progress) -> Moments:
    import torch

    encoder = encoder_of(parent)
    moments: Moments | None = None

    def infer(inputs: Any) -> dict[str, Array]:
        with torch.inference_mode():
            return {"embedding": module(*(torch.from_numpy(inputs[name]) for name in parent.tokenizer.inputs)).numpy()}

    with progress.stage("whiten") as step:
        for chunk in _chunks(texts):
            rows = encoder.rows(chunk)
            batch = parent.profile.batch.maximum
            vectors = infer_rows(infer, encoder, rows, policy="equal-length", maximum_batch=batch)["embedding"]
            moments = moments or Moments(vectors.shape[1])
            moments.add(vectors)
            step.advance(moments.count, moments.count, "texts")
        if moments is None:
            raise UsageError("The corpus holds no texts.", hint="Give a text file with one text a line.")
        step.outcome(f"{moments.count} texts")
    return moments


def _chunks(texts: Iterable[str]) -> Iterator[list[str]]:
    stream = iter(texts)
    while chunk := list(islice(stream, CHUNK)):
        yield chunk


def lines_of(path: Path) -> Iterator[str]:
    """The texts of a file with one text a line, read one after the other."""
    try:
        with path.open(encoding="utf-8") as stream:
            yield from (line.strip() for line in stream if line.strip())
    except OSError as error:
        raise UsageError(f"The text file {path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text.", hint="Give a text file with one text a line.") from error
