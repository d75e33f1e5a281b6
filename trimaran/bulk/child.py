"""The worker inside a child process of the local engine: texts come as JSON, a part goes to disk from here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trimaran.bulk.chunks import Identity
from trimaran.bulk.part_files import PartResults, RunShape, files_of
from trimaran.bulk.run_folder import write_temporary
from trimaran.bulk.worker import EncodeOptions, EncodeWorker
from trimaran.core.store import NO_SPACE


class EncodeChild:
    """Lives in an `isolation.Worker`, so its arguments and results are JSON."""

    def __init__(self, directory: str, lanes: int, threads: int, how: dict[str, Any], shape: dict[str, Any]) -> None:
        self._worker = EncodeWorker(directory, lanes=lanes, threads=threads, how=EncodeOptions.model_validate(how))
        self._shape = RunShape.model_validate(shape)

    def submit(self, key: str, texts: Sequence[Any]) -> None:
        self._worker.submit(key, texts)

    def wait(self, key: str, timeout_s: float) -> dict[str, Any]:
        return self._worker.wait(key, timeout_s)

    def write(self, key: str, index: int, rows: list[int], ids: list[Identity], parts: str) -> dict[str, Any]:
        """Writes the part under a temporary name. `full` says that the disk is, and that it may be asked again."""
        found = self._worker.take(key)
        part = PartResults([rows[i] for i in found.kept], [ids[i] for i in found.kept], found.vectors, found.answers)
        try:
            files = write_temporary(Path(parts), index, files_of(part, self._shape))
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            return {"full": True}
        self._worker.forget(key)
        return {
            "full": False,
            "files": [entry.model_dump() for entry in files],
            "bad": {str(i): reason for i, reason in found.bad.items()},
            "tokens": found.tokens,
            "cut": found.cut,
        }

    def vectors(self, texts: list[str]) -> list[list[float]]:
        """A few texts at once, for a search."""
        found = self._worker.encoded(texts).vectors
        return [] if found is None else found.tolist()
