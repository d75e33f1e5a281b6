"""The libraries that read trained models: the extra `export` installs them. What runs a made model needs none."""

from __future__ import annotations

import importlib.util

from trimaran.core.errors import UnavailableError, install_hint

EXTRA = "export"
# The names under which they are imported.
LIBRARIES = ("torch", "transformers", "optimum", "sentence_transformers", "safetensors")


def require_export_libraries() -> None:
    """Raise UnavailableError where a trained model cannot be read, before any work."""
    absent = [name for name in LIBRARIES if not _installed(name)]
    if absent:
        raise UnavailableError(
            f"Reading a trained model needs {', '.join(absent)}, which {_is(absent)} not installed.",
            hint=f"{install_hint(EXTRA)}. Models that are made already can be finished, served and loaded without.",
        )


def _is(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False
