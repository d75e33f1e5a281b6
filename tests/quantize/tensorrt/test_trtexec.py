"""What our code tells `trtexec` and reads of its log. `tests/rehearsal/test_trtexec.py` runs a whole `finish`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trimaran.core.errors import ToolError, UsageError
from trimaran.quantize.tensorrt.trtexec import TrtexecLog, build_with_trtexec

PROFILES = [{"input_ids": [[1, 1], [1, 16], [4, 48]], "attention_mask": [[1, 1], [1, 16], [4, 48]]}]
LOG = """&&&& RUNNING TensorRT.trtexec [TensorRT v{version}] [b5] # trtexec
[11/19/2026-22:11:11] [I] === Model Options ===
[11/19/2026-22:11:12] [W] [TRT] Tactic Device request: 9000MB Available: 4000MB.
[11/19/2026-22:11:13] [V] [TRT] Layers:
Name: a_myl1_0, LayerType: gemm, Inputs: []
Name: b_myl1_1, LayerType: kgen, Inputs: []
[11/19/2026-22:11:14] [V] [TRT] Total Device Persistent Memory: 0
[11/19/2026-22:11:15] [E] [TRT] Could not find any implementation for node a.
"""


def trtexec(folder: Path, version: str, ending: str) -> Path:
    """A program that writes down its arguments and says what the real one says."""
    program = folder / "trtexec"
    log = folder / "said"
    log.write_text(LOG.format(version=version), encoding="utf-8")
    program.write_text(
        f'#!/bin/sh\necho "$@" >> {folder}/asked\ncat {log}\ncase "$1" in --help) exit 0 ;; esac\n{ending}\n',
        encoding="utf-8",
    )
    program.chmod(0o755)
    return folder / "asked"


def build(folder: Path, **options: Any) -> dict[str, Any]:
    return build_with_trtexec(
        "g.onnx",
        str(folder / "model.plan"),
        runtime="tensorrt",
        profiles=PROFILES,
        options=options,
        timing_cache=str(folder / "timing" / "a.cache"),
        replace_cache=True,
        device=1,
    )


@pytest.mark.parametrize(("version", "asks_for_types"), [("110201", False), ("101600", True)])
def test_types_shapes_and_memory_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, asks_for_types: bool
) -> None:
    asked = trtexec(tmp_path, version, f"echo plan > {tmp_path}/model.plan")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    built = build(tmp_path, workspace_bytes=2000 << 20)
    flags = asked.read_text().splitlines()[-1].split()
    assert {"--onnx=g.onnx", "--device=1", "--noTF32", "--skipInference", "--memPoolSize=workspace:2000"} <= set(flags)
    assert "--optShapes=input_ids:1x16,attention_mask:1x16" in flags
    assert "--maxShapes=input_ids:4x48,attention_mask:4x48" in flags
    assert ("--stronglyTyped" in flags) is asks_for_types, "TensorRT 11 has no other networks"
    assert built["layers"] == [
        "Layers:\nName: a_myl1_0, LayerType: gemm, Inputs: []\nName: b_myl1_1, LayerType: kgen, Inputs: []"
    ]
    assert built["plan_bytes"] == 5 and built["version"].endswith(".5")


def test_what_is_out_of_memory_says_what_would_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trtexec(tmp_path, "110201", "exit 1")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(ToolError, match=r"trtexec built no engine\. It says: Could not find") as raised:
        build(tmp_path)
    assert "--workspace 2000" in raised.value.hint


def test_a_timing_cache_with_which_the_build_fails_is_begun_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "timing" / "a.cache"
    cache.parent.mkdir()
    cache.write_bytes(b"of another driver")
    trtexec(tmp_path, "110201", f"test -f {cache} && exit 1\necho plan > {tmp_path}/model.plan")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert build(tmp_path)["plan_bytes"] == 5


def test_what_trtexec_is_not_told_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trtexec(tmp_path, "110201", "exit 1")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(UsageError, match="no weight streaming"):
        build(tmp_path, weight_streaming=True)


def test_errors_and_warnings_are_told_apart_by_their_letter() -> None:
    log = TrtexecLog()
    log.read(LOG.format(version="110201").splitlines(keepends=True))
    assert log.errors == ["Could not find any implementation for node a."]
    assert log.warnings == ["Tactic Device request: 9000MB Available: 4000MB."]
