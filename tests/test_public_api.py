"""What `import trimaran` promises."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import trimaran
from tests.test_architecture import SLOW_AT_START

PUBLIC = [
    "AsyncClient",
    "Client",
    "DeployResult",
    "EmbeddingModel",
    "LocalModel",
    "Server",
    "TrimaranError",
    "__version__",
    "deploy",
    "load",
    "serve",
]


def test_the_public_names_are_these_and_each_is_there() -> None:
    assert trimaran.__all__ == PUBLIC == dir(trimaran)
    for name in PUBLIC:
        assert getattr(trimaran, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = trimaran.nothing


@pytest.mark.parametrize("name", [name for name in PUBLIC if name != "__version__"])
def test_a_public_name_is_typed_and_shows_an_example(name: str) -> None:
    thing = getattr(trimaran, name)
    assert ">>> " in (inspect.getdoc(thing) or "")
    if inspect.isfunction(thing):
        signature = inspect.signature(thing)
        assert signature.return_annotation is not inspect.Signature.empty
        assert all(parameter.annotation is not parameter.empty for parameter in signature.parameters.values())


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = f"import sys, trimaran; loaded = set(sys.modules) & {SLOW_AT_START!r}; assert not loaded, loaded"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
