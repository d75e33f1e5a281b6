"""The folder of an unfinished distillation: it survives a kill, and `--resume` continues from it."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from trimaran.core.errors import UsageError
from trimaran.core.persisted import Persisted
from trimaran.core.store import locked, write_atomically


class RunState(Persisted):
    """`run.json` in the folder of an unfinished run."""

    what: ClassVar[str] = "state of an unfinished run"
    remedy: ClassVar[str] = "Remove its folder and begin again."

    # Digest of the teacher, the texts and the settings.
    key: str
    # How far the answers moved with only these layers, such as "0 1 3", for every choice that was tried.
    trials: dict[str, float] = {}
    # The layers that stay, once they are chosen.
    layers: tuple[int, ...] = ()
    # Of all sessions so far: by the clock, and of the CPU.
    spent_s: float = 0.0
    cpu_s: float = 0.0


class ShrinkingRun:
    """The folder of an unfinished run, `.NAME.shrinking` beside the output."""

    def __init__(self, folder: Path, key: str) -> None:
        self.folder, self._path = folder, folder / "run.json"
        self.state = RunState.read(self._path) if self._path.is_file() else RunState(key=key)
        self._begun_s = time.monotonic() - self.state.spent_s
        self._begun_cpu_s = time.process_time() - self.state.cpu_s

    def spent_s(self) -> float:
        return time.monotonic() - self._begun_s

    def cpu_s(self) -> float:
        """Of all threads of the process."""
        return time.process_time() - self._begun_cpu_s

    def save(self, **changes: Any) -> None:
        self.state = self.state.model_copy(update={**changes, "spent_s": self.spent_s(), "cpu_s": self.cpu_s()})
        write_atomically(self._path, self.state.to_json())


@contextlib.contextmanager
def opened_run(output: Path, key: str, *, resume: bool) -> Iterator[ShrinkingRun]:
    """Removes the folder when the block ends well. Raises UsageError for a run of another kind."""
    folder = output.with_name(f".{output.name}.shrinking")
    try:
        with locked(folder, wait=False):
            if (folder / "run.json").is_file() and not resume:
                raise UsageError(
                    f"{folder} holds a run that did not finish.",
                    hint="Add --resume to continue it, or remove that folder to begin again.",
                )
            run = ShrinkingRun(folder, key)
            if run.state.key != key:
                raise UsageError(
                    f"{folder} holds a run of another model, of other texts or with other settings.",
                    hint="Give what the first command had, or remove that folder to begin again.",
                )
            run.save()
            yield run
            shutil.rmtree(folder, ignore_errors=True)
    except BlockingIOError:
        raise UsageError(f"Another process shrinks into {output} right now.") from None
