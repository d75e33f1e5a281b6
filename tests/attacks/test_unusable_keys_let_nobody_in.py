"""A damaged key file gave 502 to everybody without a word why; a file that everybody may write to was used."""

from __future__ import annotations

import asyncio
import errno
import logging
import re
from pathlib import Path

import pytest

from trimaran.core.errors import IntegrityError, UsageError
from trimaran.serving.gateway.border import KeyRequired
from trimaran.serving.gateway.keys import Keys, add_key, read_keys
from trimaran.serving.gateway.refusals import Refusal


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "gateway").mkdir()
    return tmp_path / "gateway" / "keys.json"


def test_a_damaged_file_is_said_once_and_refuses_everybody_until_it_is_whole(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key = add_key(path, "a").encode()
    keys = Keys(path)
    assert keys.find(key) is not None
    whole = path.read_text()
    path.write_text(whole[:40])
    with caplog.at_level(logging.ERROR):
        for secret in (key, b"guess"):
            with pytest.raises(Refusal) as refused:
                keys.find(secret)
            assert (refused.value.status, refused.value.code) == (503, "keys_unusable")
    assert len(caplog.records) == 1 and "keys.json" in caplog.text
    with pytest.raises(IntegrityError):
        read_keys(path)
    path.write_text(whole)
    assert keys.find(key) is not None


def test_a_file_that_everybody_may_write_to_is_refused(path: Path) -> None:
    key = add_key(path, "a").encode()
    keys = Keys(path)
    assert keys.find(key) is not None
    path.chmod(0o666)
    with pytest.raises(Refusal):
        keys.find(key)
    with pytest.raises(UsageError, match="chmod 600"):
        read_keys(path)
    with pytest.raises(UsageError, match="chmod 600"):
        add_key(path, "b")
    path.chmod(0o600)
    assert keys.find(key) is not None


@pytest.mark.parametrize("digest", ["é", "", "0" * 63, "G" * 64])
def test_a_digest_that_is_none_is_damage(path: Path, digest: str) -> None:
    """A sign outside ASCII cannot be compared in constant time: every request ended with 500."""
    key = add_key(path, "a").encode()
    path.write_text(re.sub('"sha256": "[^"]*"', f'"sha256": "{digest}"', path.read_text()))
    with pytest.raises(Refusal) as refused:
        Keys(path).find(key)
    assert refused.value.code == "keys_unusable"


def test_a_file_that_cannot_be_read_lets_nobody_in(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = add_key(path, "a").encode()
    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", _forbidden)
        with pytest.raises(UsageError, match="cannot be read"):
            read_keys(path)
    with pytest.raises(Refusal) as refused:
        Keys(path / "below-a-file").find(key)
    assert refused.value.code == "keys_unusable"


def _forbidden(path: Path) -> bytes:
    raise PermissionError(errno.EACCES, "Permission denied")


@pytest.mark.parametrize("order", [(0, 1), (1, 0), (0, 0)])
def test_two_authorization_headers_are_refused_whichever_is_right(path: Path, order: tuple[int, int]) -> None:
    good = b"Bearer " + add_key(path, "a").encode()
    sent = [(b"authorization", (good, b"Bearer trk_guess")[index]) for index in order]

    class Gateway:
        keys = Keys(path)

    async def unreachable(*arguments: object) -> None:
        raise AssertionError("let in")

    border = KeyRequired(unreachable, gateway=Gateway(), open_paths=frozenset())  # type: ignore[arg-type]
    scope = {"type": "http", "path": "/v1/models", "headers": sent, "call": None}
    with pytest.raises(Refusal) as refused:
        asyncio.run(border(scope, None, None))  # type: ignore[arg-type]
    assert refused.value.status == 401
