"""The keys of callers: shown once, stored as digests, compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import secrets
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic import ValidationError as SchemaError

from trimaran.core.errors import IntegrityError, TrimaranError, UsageError
from trimaran.core.spec import Frozen
from trimaran.core.store import default_home, locked, write_atomically
from trimaran.serving.gateway.refusals import Refusal
from trimaran.serving.gateway.settings import RateLimit

PREFIX = "trk_"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_LONGEST_KEY = 256
log = logging.getLogger(__name__)


class Key(Frozen):
    name: str
    # Of the whole key. 256 random bits need no salt and no slow hash: they cannot be guessed.
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    # ISO 8601, UTC.
    created: str
    # Overrides the gateway's own limit of requests.
    rate: RateLimit | None = None
    # Overrides the gateway's own limit of texts.
    text_rate: RateLimit | None = None


class KeyFile(Frozen):
    schema_version: Literal[1] = Field(default=1, alias="schema")
    keys: tuple[Key, ...] = ()


class Keys:
    """The keys of a file, read again when it changes, so that a removed key stops working at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_state: tuple[int, ...] | None = None
        self._error: TrimaranError | None = None
        self._keys: tuple[Key, ...] = ()

    def find(self, secret: bytes) -> Key | None:
        """Compares every key, even after a match, so that the time taken tells nothing."""
        digest = hashlib.sha256(secret[:_LONGEST_KEY]).hexdigest()
        matching = [key for key in self._current() if hmac.compare_digest(digest, key.sha256)]
        return matching[-1] if matching else None

    def _current(self) -> tuple[Key, ...]:
        """Raises Refusal (503) while the file is damaged, cannot be read, or everybody may write to it."""
        try:
            facts = self._path.stat()
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise _unusable() from error
        state = (facts.st_mtime_ns, facts.st_ctime_ns, facts.st_size, facts.st_ino)
        if state != self._read_state:
            self._read_state, self._error = state, None
            try:
                self._keys = read_keys(self._path)
            except TrimaranError as error:
                log.error("Every request is refused: %s", error)
                self._error = error
        if self._error is not None:
            raise _unusable() from self._error
        return self._keys


def _unusable() -> Refusal:
    return Refusal(503, "keys_unusable", "The gateway cannot read its keys. Its log says why.")


def default_key_file() -> Path:
    return default_home() / "gateway" / "keys.json"


def read_keys(path: Path) -> tuple[Key, ...]:
    """Raises IntegrityError for a damaged file, UsageError for a file to which everybody could add keys."""
    if not path.is_file():
        return ()
    if path.stat().st_mode & stat.S_IWOTH:
        raise UsageError(f"Everybody may write to {path}, and so make keys.", hint=f"chmod 600 {path}")
    try:
        return KeyFile.model_validate_json(path.read_bytes()).keys
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}.", hint="Give the file to the gateway's user."
        ) from error
    except SchemaError as error:
        raise IntegrityError(
            f"{path} is not a file of keys: {error.error_count()} fields are wrong.",
            hint="Remove it and add the keys again.",
        ) from error


def add_key(path: Path, name: str, *, rate: RateLimit | None = None, text_rate: RateLimit | None = None) -> str:
    """Returns the new key, which is stored nowhere."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} cannot name a key: use letters, digits, '.', '_' and '-'.")
    key = PREFIX + secrets.token_urlsafe(32)
    with locked(path.parent):
        keys = read_keys(path)
        if any(known.name == name for known in keys):
            raise UsageError(f"There is a key {name!r} already.", hint=f"`trimaran gateway key remove {name}` first.")
        added = Key(
            name=name,
            sha256=hashlib.sha256(key.encode()).hexdigest(),
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            rate=rate,
            text_rate=text_rate,
        )
        _write(path, (*keys, added))
    return key


def remove_key(path: Path, name: str) -> None:
    with locked(path.parent):
        keys = read_keys(path)
        kept = tuple(key for key in keys if key.name != name)
        if len(kept) == len(keys):
            known = ", ".join(key.name for key in keys) or "none"
            raise UsageError(f"There is no key {name!r}.", hint=f"Known: {known}.")
        _write(path, kept)


def _write(path: Path, keys: tuple[Key, ...]) -> None:
    before = os.umask(0o077)
    try:
        write_atomically(path, KeyFile(schema=1, keys=keys).model_dump_json(by_alias=True, indent=2) + "\n")
    finally:
        os.umask(before)
