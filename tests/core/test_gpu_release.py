"""One table of what belongs together on a GPU machine, and everything that must agree with it."""

from __future__ import annotations

import multiprocessing
import re
import tomllib
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from trimaran.core.gpu_lock import exclusive_gpu
from trimaran.core.gpu_release import GPU_RELEASE, mismatches, missing_module

ROOT = Path(__file__).parents[2]


def test_the_image_and_the_wheel_are_the_pair_of_the_table() -> None:
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
    assert re.findall(r"^ARG TRITON=(.+)$", dockerfile, re.MULTILINE) == [GPU_RELEASE.triton]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert GPU_RELEASE.wheel in extras["gpu"]
    page = (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")
    for fact in GPU_RELEASE.model_dump().values():
        assert fact in page, fact


def test_what_does_not_fit_the_image_is_said_with_the_remedy() -> None:
    assert mismatches("11.2.1.8", "580.65.06") == ()
    assert mismatches(None, None) == ()
    (other,) = mismatches("11.4.0.106", "595.1")
    assert "TensorRT 11.4.0.106 is installed, the image 26.08 has 11.2.1" in other
    assert "pip install 'tensorrt==11.2.1.*'" in other
    (old,) = mismatches("11.2.1", "570.124.06")
    assert mismatches("11.2.1", "570.124.06", "13.4") == (), "a newer driver library over an older driver"
    assert old == "the driver 570.124.06 is too old for CUDA 13.4.1: install 580.65.06 or newer"


@pytest.mark.parametrize(
    ("banner", "words"),
    [
        ("&&&& RUNNING TensorRT.trtexec [TensorRT v110300] [b14] # trtexec --help", "pip install 'tensorrt==11.3.0.*'"),
        (
            "&&&& RUNNING TensorRT.trtexec [TensorRT v101602] [b10] # trtexec --help",
            "TensorRT 10.16.2.10 is here as trtexec",
        ),
        ("something else", f"pip install '{GPU_RELEASE.wheel}'"),
    ],
)
def test_the_wheel_to_install_is_that_of_the_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, banner: str, words: str
) -> None:
    program = tmp_path / "trtexec"
    program.write_text(f"#!/bin/sh\necho '{banner}'\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert words in missing_module()


def hold(entered: Event, leave: Event) -> None:
    with exclusive_gpu(97):
        entered.set()
        leave.wait(60)


def test_a_second_build_or_timing_waits_for_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    context = multiprocessing.get_context("spawn")
    events = [(context.Event(), context.Event()) for _ in range(2)]
    first, second = (context.Process(target=hold, args=pair) for pair in events)
    first.start()
    assert events[0][0].wait(60)
    second.start()
    assert not events[1][0].wait(0.5), "the GPU is taken"
    events[0][1].set()
    assert events[1][0].wait(60)
    events[1][1].set()
    for process in (first, second):
        process.join(60)
