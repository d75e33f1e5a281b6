"""Why a Triton cannot run here."""

from __future__ import annotations

import os
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

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


def test_programs_go_where_they_may_be_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("TRIMARAN_HOME", str(home))
    monkeypatch.setattr(installation.tempfile, "gettempdir", lambda: str(tmp_path))
    assert installation.executable_folder() == tmp_path
    flags = {tmp_path: os.ST_NOEXEC, home: 0}
    monkeypatch.setattr(installation.os, "statvfs", lambda folder: SimpleNamespace(f_flag=flags[folder]))
    assert installation.executable_folder() == home


def test_an_image_has_its_backends_already(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, triton: None) -> None:
    found = installation.find()
    assert found.backends(tmp_path) == tmp_path / "backends"
    assert os.access(tmp_path / "backends" / "python" / "triton_python_backend_stub", os.X_OK)
    monkeypatch.setenv("TRIMARAN_BACKENDS", "/opt/trimaran/backends")
    assert found.backends(tmp_path / "other") == Path("/opt/trimaran/backends")
    assert not (tmp_path / "other").exists()


def test_the_triton_of_nvidias_image_is_used_where_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMARAN_TRITON", str(tmp_path))
    with pytest.raises(UnavailableError, match=r"TRIMARAN_TRITON.*has no tritonserver"):
        installation.find()
    for program in ("bin/tritonserver", "backends/python/triton_python_backend_stub"):
        (tmp_path / program).parent.mkdir(parents=True)
        (tmp_path / program).write_text("")
    found = installation.find()
    assert found.binary == tmp_path / "bin" / "tritonserver"
    assert found.backends(tmp_path / "other") == tmp_path / "backends", "TensorRT's backend is there"
    assert not (tmp_path / "other").exists()
