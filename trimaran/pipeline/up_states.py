"""The processes that run `trimaran up`: read by `trimaran status`, which also runs where nothing is ever deployed."""

from __future__ import annotations

from pathlib import Path

from trimaran.core.store import default_home
from trimaran.serving.triton.states import ProcessState, live_states


class UpState(ProcessState):
    """A process that runs `trimaran up`."""

    url: str
    repository: Path
    name: str

    @property
    def path(self) -> Path:
        return default_home() / "up" / f"{self.pid}.json"

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


def ups() -> tuple[UpState, ...]:
    """The live ones. State files of dead ones are removed."""
    return live_states(default_home() / "up", UpState, UpState.remove)
