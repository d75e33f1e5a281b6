"""Which device a deployment takes, on a machine without a driver. `tests/rehearsal` has one with GPUs."""

from __future__ import annotations

import pytest

from trimaran.core.devices import choose_device
from trimaran.core.errors import UnavailableError, UsageError
from trimaran.runtime.cuda_driver import LIBRARY_VARIABLE


@pytest.fixture(autouse=True)
def without_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIBRARY_VARIABLE, "/nowhere/libcuda.so.1")


def test_auto_takes_the_cpu_and_says_why() -> None:
    assert str(choose_device("auto")) == ("cpu, because there is no NVIDIA driver (libcuda.so.1) on this machine")


def test_a_gpu_that_was_asked_for_is_not_replaced_by_the_cpu() -> None:
    with pytest.raises(UnavailableError, match="cuda:1 cannot be used: there is no NVIDIA driver"):
        choose_device("cuda:1")


def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(UsageError, match="Unknown device 'gpu'"):
        choose_device("gpu")
