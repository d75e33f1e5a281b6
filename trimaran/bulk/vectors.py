"""Reads the vectors of a finished run, one part at a time, whatever format they were written in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from trimaran.bulk.part_files import VectorBlock, vectors_in
from trimaran.bulk.run_folder import PARTS, BulkManifest, read_manifest
from trimaran.core.artifact import sha256_of
from trimaran.core.errors import IntegrityError, UsageError
from trimaran.core.small_vectors import Vectors

_UNIT_TOLERANCE = 1e-3


class VectorFolder:
    """The vectors of a run. Only one part is in memory at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest: BulkManifest = read_manifest(folder)
        shape = self.manifest.settings.shape
        if not shape.width:
            raise UsageError(f"{folder} holds answers of {shape.task}, not vectors.")
        self.width = shape.width
        self.count = self.manifest.rows_written
        if not self.count:
            raise UsageError(f"{folder} holds no vector.")

    def blocks(self, *, verify: bool = False) -> Iterator[VectorBlock]:
        """The parts in order; with `verify`, each file is compared with its digest before it is used."""
        for part in self.manifest.parts:
            if not part.files:
                continue
            for entry in part.files if verify else ():
                path = self.folder / PARTS / entry.name
                if not path.is_file() or sha256_of(path) != entry.sha256:
                    raise IntegrityError(
                        f"{path} is missing or differs from the manifest.",
                        hint="`trimaran encode … --resume` makes it again.",
                        path=str(path),
                    )
            names = [entry.name for entry in part.files]
            yield vectors_in(self.folder / PARTS, names, self.manifest.settings.shape)

    def sample(self, size: int, *, seed: int, verify: bool = False) -> tuple[npt.NDArray[np.int64], Vectors]:
        """Random vectors from all parts, with their positions in the whole run, ascending."""
        positions = np.sort(np.random.default_rng(seed).permutation(self.count)[:size])
        taken, begin = [], 0
        for block in self.blocks(verify=verify):
            end = begin + len(block.vectors)
            inside = positions[(positions >= begin) & (positions < end)]
            taken.append(block.vectors[inside - begin])
            begin = end
        return positions, np.concatenate(taken)


def are_unit(vectors: Vectors) -> bool:
    """Whether all vectors have length 1, so that their inner product is their cosine."""
    return bool(np.all(np.abs(np.linalg.norm(vectors, axis=1) - 1) < _UNIT_TOLERANCE))
