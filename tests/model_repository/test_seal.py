"""Versions of before the digest lists."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tiny import tiny_artifact
from trimaran.core import digests
from trimaran.core.config_pbtxt import read_config, write_config
from trimaran.core.digests import require_undamaged
from trimaran.core.errors import IntegrityError
from trimaran.model_repository.check import problems
from trimaran.model_repository.layout import lay_out
from trimaran.model_repository.seal import seal


def test_a_version_without_a_list_is_served_with_a_warning_until_it_is_sealed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIMARAN_HOME", str(tmp_path / "home"))
    # The logger itself, not what reaches the root: libraries that other tests use may switch logging off.
    warnings: list[str] = []
    monkeypatch.setattr(digests.log, "warning", lambda words, *facts: warnings.append(words % facts))
    lay_out(tiny_artifact(tmp_path / "s"), repository=tmp_path / "r", name="m", rows="padded", threads=1)
    for path in (tmp_path / "r").rglob("config.pbtxt"):
        config = read_config(path)
        del config.parameters["digests"]
        write_config(path, config)
    for path in (tmp_path / "r").rglob("digests.json"):
        path.unlink()
    version, config = tmp_path / "r" / "m" / "1", read_config(tmp_path / "r" / "m" / "config.pbtxt")
    (version / "text.py").write_text((version / "text.py").read_text() + "\n")
    require_undamaged(version, config)
    assert len(warnings) == 1 and "has no digest list" in warnings[0]
    assert problems(tmp_path / "r") == ()
    assert seal(tmp_path / "r") == (version, tmp_path / "r" / "m_onnxruntime" / "1")
    assert seal(tmp_path / "r") == ()
    (version / "text.py").write_text("")
    with pytest.raises(IntegrityError, match=r"text\.py"):
        require_undamaged(version, config)
