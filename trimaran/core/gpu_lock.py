"""One build or one measurement at a time on a GPU: a second one would change what the first one times."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from trimaran.core.store import locked


@contextlib.contextmanager
def exclusive_gpu(device: int = 0) -> Iterator[None]:
    """Wait until no other process of trimaran builds or times on this GPU. The lock ends with the process."""
    with locked(Path(tempfile.gettempdir()) / f"trimaran-gpu-{device}"):
        yield
