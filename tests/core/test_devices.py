"""Which device a deployment takes, on a machine without a driver. `tests/rehearsal` has one with GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimaran.core import devices
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


@pytest.mark.parametrize(
    ("vendor", "kind", "found"),
    [("0x10de", "0x030200", True), ("0x10de", "0x0c0330", False), ("0x8086", "0x030000", False)],
)
def test_a_gpu_without_its_driver_is_seen_on_the_bus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vendor: str, kind: str, found: bool
) -> None:
    """A card's sound or USB function is no GPU."""
    monkeypatch.setattr(devices, "driver_present", lambda: False)
    card = tmp_path / "0000:01:00.0"
    card.mkdir()
    (card / "vendor").write_text(f"{vendor}\n")
    (card / "class").write_text(f"{kind}\n")
    said = devices.card_without_driver(tmp_path)
    assert ("install the driver 580.65.06 or newer" in said) is found
    assert bool(said) is found
    monkeypatch.setattr(devices, "driver_present", lambda: True)
    assert devices.card_without_driver(tmp_path) == ""
