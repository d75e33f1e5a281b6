"""Why a Triton cannot run here."""

from __future__ import annotations

from importlib import metadata

import pytest

from trimaran.core.errors import UnavailableError
from trimaran.serving.triton import installation


def test_numpy_2_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: "2.3.1")
    with pytest.raises(UnavailableError, match=r"numpy below 2, found 2\.3\.1.*constraints"):
        installation.find()
    assert "numpy below 2" in str(installation.why_not())


def test_a_missing_triton_is_said_with_the_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UnavailableError, match=r"nvidia-pytriton.*trimaran\[triton\]"):
        installation.find()
