"""An artifact arrives in another store once, and only whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bulk.worlds import tiny
from trimaran.bulk.shipping import pack, unpack
from trimaran.core.errors import IntegrityError
from trimaran.core.store import HOME_VARIABLE


def test_an_artifact_lands_once_and_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = tiny(tmp_path / "here")
    shipment = pack(sent, lambda data: data)
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "there"))
    fetched: list[int] = []

    def fetch(data: bytes) -> bytes:
        fetched.append(len(data))
        return data

    first = unpack(shipment, fetch)
    assert first.directory.is_relative_to(tmp_path / "there")
    assert first.files == sent.files
    count = len(fetched)
    assert unpack(shipment, fetch).directory == first.directory
    assert len(fetched) == count
    (first.directory / "model.onnx").write_bytes(b"damaged")
    assert unpack(shipment, fetch).files == sent.files
    assert len(fetched) == 2 * count


def test_what_was_damaged_on_the_way_does_not_land(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shipment = pack(tiny(tmp_path / "here"), lambda data: data)
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "there"))
    with pytest.raises(IntegrityError, match="bytes, its manifest says"):
        unpack(shipment, lambda data: data[:-1])
    assert not list((tmp_path / "there" / "store").iterdir())
