"""Searches an index for the vectors nearest to a text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import ValidationError as SchemaError

from trimaran.bulk.child import EncodeChild
from trimaran.bulk.faiss_index import IndexFacts, facts_path, faiss_library, ids_path, ready_for_index
from trimaran.bulk.hit_texts import texts_of
from trimaran.bulk.worker import EncodeOptions, require_prompt, width_of
from trimaran.core.artifact import Artifact
from trimaran.core.environment import usable_cores
from trimaran.core.errors import IntegrityError, UsageError
from trimaran.core.isolation import Worker
from trimaran.core.small_vectors import Vectors
from trimaran.core.spec import Frozen
from trimaran.core.tasks import task
from trimaran.runtime.tasks.hybrid_embedding import DENSE, OUTPUTS
from trimaran.runtime.text import Text

_DEADLINE_S = 600.0
_OLD_INDEX = "The index does not say where its vectors came from; build it again."


class Hit(Frozen):
    id: int | str
    score: float
    # What was encoded; None where the input cannot be read any more. A pair has two.
    text: Text | None = None


class SavedIndex:
    """An index file with its facts and its ids."""

    def __init__(self, path: Path) -> None:
        if not path.is_file() or not facts_path(path).is_file():
            raise UsageError(
                f"{path} is no index with its {facts_path(path).name}.", hint="`trimaran index build` makes one."
            )
        try:
            self.facts = IndexFacts.model_validate_json(facts_path(path).read_bytes())
            self._index = faiss_library().read_index(str(path))
        except (SchemaError, RuntimeError) as error:
            raise IntegrityError(f"{path} cannot be read as an index.", hint="Build it again.") from error
        lines = ids_path(path).read_text(encoding="utf-8").splitlines()
        self._ids = [json.loads(line) for line in lines]
        if not len(self._ids) == self._index.ntotal == self.facts.count:
            raise IntegrityError(
                f"{path} has {self._index.ntotal} vectors and {len(self._ids)} ids; {self.facts.count} were written.",
                hint="Build it again.",
            )

    def search(self, vectors: Vectors, k: int) -> list[list[Hit]]:
        """The nearest of each vector, best first; fewer than `k` where the index has fewer."""
        if vectors.shape[1] != self.facts.width:
            raise UsageError(
                f"The index holds vectors of {self.facts.width} numbers, the model gives {vectors.shape[1]}.",
                hint=f"Search with the model that made it: {self.facts.model}.",
            )
        ready = ready_for_index(vectors, self.facts.metric)
        scores, positions = self._index.search(ready, min(k, self.facts.count))
        return [
            [
                Hit(id=self._ids[position], score=float(score))
                for score, position in zip(*row, strict=True)
                if position >= 0
            ]
            for row in zip(scores, positions, strict=True)
        ]

    def with_texts(self, answers: Sequence[Sequence[Hit]]) -> tuple[list[list[Hit]], str]:
        """The hits with their texts, and the reason if the texts cannot be found."""
        ids = {hit.id for hits in answers for hit in hits}
        texts, reason = texts_of(Path(self.facts.vectors), ids) if self.facts.vectors else ({}, _OLD_INDEX)
        shown = [[hit.model_copy(update={"text": texts.get(hit.id)}) for hit in hits] for hits in answers]
        return shown, reason


class EncodedTexts(NamedTuple):
    vectors: Vectors
    # The outputs beside the vectors, one dictionary a text; empty unless they were asked for.
    answers: list[dict[str, Any]]


def encoded_by_artifact(
    artifact: Artifact, how: EncodeOptions, texts: Sequence[str], *, hybrid: bool = False
) -> EncodedTexts:
    """Encodes a few texts in a child process, so that an engine that crashes does not end this one.

    `hybrid` asks for all outputs of a hybrid model.
    """
    width = width_of(artifact)
    if not width:
        raise UsageError(f"{artifact.directory.name} answers {artifact.task}, not vectors.")
    require_prompt(artifact, how)
    if task(artifact.task).column and not hybrid:
        how = how.model_copy(update={"ask": {**how.ask, OUTPUTS: [DENSE]}})
    with Worker(environment=artifact.execution_environment) as worker:
        child = worker.hold(
            EncodeChild,
            _DEADLINE_S,
            directory=str(artifact.directory),
            lanes=1,
            threads=usable_cores(),
            how=how.model_dump(mode="json"),
        )
        vectors, answers = child.call(EncodeChild.encoded, _DEADLINE_S, texts=list(texts))
    return EncodedTexts(np.asarray(vectors, np.float32).reshape(len(texts), width), answers if hybrid else [])
