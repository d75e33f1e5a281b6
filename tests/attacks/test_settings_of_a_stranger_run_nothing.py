"""An artifact or repository from elsewhere cannot set variables, options or paths that trimaran does not write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.commands import trimaran
from tests.tiny import tiny_artifact
from trimaran.core.digests import list_digests
from trimaran.core.errors import IntegrityError
from trimaran.core.store import Store
from trimaran.model_repository.layout import lay_out
from trimaran.serving.triton.undamaged import require_loadable

HOSTILE: tuple[tuple[str, Any], ...] = (
    ("execution_environment", {"LD_PRELOAD": "/tmp/evil.so"}),
    ("execution_environment", {"PYTHONPATH": "/tmp/evil"}),
    ("execution_environment", {"ONEDNN_MAX_CPU_ISA": "AVX2\nLD_PRELOAD=/tmp/evil.so"}),
    ("engine_options", {"CACHE_DIR": "/home"}),
    ("entry", "../../../tmp/evil.onnx"),
    ("entry", "/tmp/evil.onnx"),
    ("backend", "os.path"),
    ("threads", 10**7),
)


def spoil(path: Path, field: str, value: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), field: value}))


@pytest.mark.parametrize(("field", "value"), HOSTILE)
def test_hostile_settings_are_refused_before_anything_is_loaded(
    tmp_path: Path, field: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIMARAN_HOME", str(tmp_path / "home"))
    artifact = tiny_artifact(tmp_path / "s")
    lay_out(artifact, repository=tmp_path / "r", name="m", rows="padded", threads=1)
    version = tmp_path / "r" / "m" / "1"
    require_loadable(tmp_path / "r", "m")
    spoil(version / "serving.json", field, value)
    # The stranger writes the list too.
    list_digests(version, model="m", version=1)
    with pytest.raises(IntegrityError):
        require_loadable(tmp_path / "r", "m")
    if field != "threads":
        spoil(artifact.directory / "manifest.json", field, value)
        with pytest.raises(IntegrityError):
            Store(tmp_path / "s").open(str(artifact.directory))


def test_a_file_outside_the_folder_is_not_named_by_a_manifest(tmp_path: Path) -> None:
    artifact = tiny_artifact(tmp_path / "s")
    path = artifact.directory / "manifest.json"
    facts = json.loads(path.read_text())
    facts["files"][0]["name"] = "../../secret"
    path.write_text(json.dumps(facts))
    with pytest.raises(IntegrityError, match="leads out of its folder"):
        Store(tmp_path / "s").open(str(artifact.directory))


def test_more_instances_than_a_machine_has_are_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMARAN_HOME", str(tmp_path / "home"))
    lay_out(tiny_artifact(tmp_path / "s"), repository=tmp_path / "r", name="m", rows="padded", threads=1)
    path = tmp_path / "r" / "m" / "config.pbtxt"
    path.write_text(path.read_text().replace("count: 1", "count: 1000000"))
    with pytest.raises(IntegrityError, match="at most 256"):
        require_loadable(tmp_path / "r", "m")


@pytest.mark.parametrize("command", [("serve", "--docker", "--dry-run"), ("kubernetes",)])
def test_hostile_variables_reach_no_container(tmp_path: Path, command: tuple[str, ...]) -> None:
    lay_out(tiny_artifact(tmp_path / "s"), repository=tmp_path / "r", name="m", rows="padded", threads=1)
    spoil(tmp_path / "r" / "m" / "1" / "serving.json", "execution_environment", {"LD_PRELOAD": "/tmp/evil.so"})
    where = ("m", "--repository", tmp_path / "r") if command[0] == "kubernetes" else (tmp_path / "r",)
    done = trimaran(*command, *where, home=tmp_path / "home")
    assert done.returncode == 5
    assert "evil" not in done.stdout and "LD_PRELOAD" in done.stderr
