"""The worker in a child process of the local engine. Texts come as JSON; the child writes the part to disk."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trimaran.bulk.chunks import Identity
from trimaran.bulk.part_files import RunShape, as_list, files_of
from trimaran.bulk.run_folder import write_temporary
from trimaran.bulk.worker import EncodeOptions, EncodeWorker
from trimaran.core.store import NO_SPACE


class EncodeChild:
    """Lives in an `isolation.Worker`, so its arguments and results are JSON."""

    def __init__(self, directory: str, lanes: int, threads: int, how: dict[str, Any]) -> None:
        self._worker = EncodeWorker(directory, lanes=lanes, threads=threads, how=EncodeOptions.model_validate(how))

    def submit(self, key: str, texts: Sequence[Any]) -> None:
        self._worker.submit(key, texts)

    def wait(self, key: str, timeout_s: float) -> dict[str, Any]:
        return self._worker.wait(key, timeout_s)

    def write(
        self, key: str, index: int, rows: list[int], ids: list[Identity], parts: str, shape: dict[str, Any]
    ) -> dict[str, Any]:
        """Writes the part under temporary names. If the disk is full, `full` is true and the call may be repeated."""
        encoded = self._worker.take(key)
        part = files_of(encoded.part(rows, ids), RunShape.model_validate(shape))
        try:
            files = write_temporary(Path(parts), index, part)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            return {"full": True}
        self._worker.forget(key)
        return {
            "full": False,
            "files": [entry.model_dump() for entry in files],
            "bad": {str(i): reason for i, reason in encoded.bad.items()},
            "tokens": encoded.tokens,
            "cut": encoded.cut,
        }

    def encoded(self, texts: list[str]) -> tuple[list[list[float]], list[Any]]:
        """The vectors of a few texts, and what a hybrid model gives beside them, for a search."""
        encoded = self._worker.encoded(texts)
        answers = json.loads(json.dumps(encoded.answers, default=as_list))
        return [] if encoded.vectors is None else encoded.vectors.tolist(), answers
