"""The scripts under benchmarks/, imported as they import one another: by their names, from their own folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace


@contextmanager
def scripts_in(folder: Path, names: Sequence[str]) -> Iterator[SimpleNamespace]:
    """Forgotten afterwards, because another folder may have a script of the same name."""
    sys.path.insert(0, str(folder))
    try:
        yield SimpleNamespace(**{name: import_module(name) for name in names})
    finally:
        sys.path.remove(str(folder))
        for name in names:
            sys.modules.pop(name, None)
