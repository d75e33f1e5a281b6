"""Who may call: nobody without a key, unless it was said; and a guess learns nothing."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from tests.commands import trimaran_here, trimaran_json_here
from tests.serving.gateway.worlds import Running
from trimaran.core.errors import IntegrityError, UsageError
from trimaran.serving.gateway.keys import Keys, add_key, read_keys, remove_key

CLOSED = (
    "/v1/embeddings",
    "/v1/models",
    "/metrics",
    "/rerank",
    "/nowhere",
    "/v2/models",
    "/encode",
    "/info",
    "/docs/other",
)
OPEN = ("/", "/openapi.json", "/healthz", "/readyz", "/docs", "/docs/start.js")


def test_a_key_is_kept_only_as_a_digest_that_others_cannot_read(tmp_path: Path) -> None:
    path = tmp_path / "new" / "keys.json"
    key = add_key(path, "laptop")
    text = path.read_text()
    assert key not in text and key.removeprefix("trk_") not in text
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    found = Keys(path).find(key.encode())
    assert found is not None and found.name == "laptop"


@pytest.mark.parametrize(
    "change", [lambda key: key[:-1], lambda key: key + "a", str.upper, lambda key: "", str.swapcase]
)
def test_nearly_a_key_is_none(tmp_path: Path, change: object) -> None:
    key = add_key(tmp_path / "keys.json", "laptop")
    assert Keys(tmp_path / "keys.json").find(change(key).encode()) is None  # type: ignore[operator]


def test_a_removed_key_stops_working_at_once(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    first, second = add_key(path, "a"), add_key(path, "b")
    keys = Keys(path)
    assert keys.find(first.encode())
    remove_key(path, "a")
    assert keys.find(first.encode()) is None
    assert keys.find(second.encode())


def test_names_are_unique_and_plain(tmp_path: Path) -> None:
    add_key(tmp_path / "keys.json", "a")
    with pytest.raises(UsageError, match="already"):
        add_key(tmp_path / "keys.json", "a")
    with pytest.raises(UsageError, match="cannot name"):
        add_key(tmp_path / "keys.json", "a\nb")
    with pytest.raises(UsageError, match="no key 'b'"):
        remove_key(tmp_path / "keys.json", "b")


def test_a_damaged_file_of_keys_is_named(tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text("{}}")
    with pytest.raises(IntegrityError, match="not a file of keys"):
        read_keys(tmp_path / "keys.json")


def test_the_commands_make_list_and_remove(tmp_path: Path) -> None:
    home = tmp_path / "home"
    made = trimaran_here("gateway", "key", "add", "laptop", home=home)
    assert made.stdout.startswith("trk_")
    listed = trimaran_json_here("gateway", "key", "list", home=home)
    assert [key["name"] for key in listed["keys"]] == ["laptop"]
    assert "sha256" not in json.dumps(listed)
    assert trimaran_here("gateway", "key", "remove", "laptop", home=home).returncode == 0
    refused = trimaran_here("gateway", "--url", "127.0.0.1:1", home=home)
    assert refused.returncode == 2
    assert "no key" in refused.stderr and "--no-auth" in refused.stderr


GUESSES: tuple[dict[str, str], ...] = (
    {},
    {"Authorization": ""},
    {"Authorization": "Bearer"},
    {"Authorization": "Bearer "},
    {"Authorization": "Bearer trk_" + "a" * 43},
    {"Authorization": "Bearer " + "a" * 20_000},
    {"Authorization": "Basic dGVzdHM6dGVzdHM="},
    {"Authorization": "Bearer tests"},
    {"X-Api-Key": "tests"},
    {"Authorization": "Bearer null", "X-Forwarded-For": "127.0.0.1"},
)


@pytest.mark.parametrize("path", CLOSED)
def test_every_guess_at_every_path_gets_the_same_answer(running: Running, path: str) -> None:
    answers = set()
    for headers in GUESSES:
        for method, body in (("GET", None), ("POST", b"{}")):
            found = running.ask(path, body, method=method, key="", headers=headers)
            error = found.json["error"]
            error.pop("request_id")
            answers.add((found.status, json.dumps(error), tuple(sorted(set(found.headers) - {"connection"}))))
    assert len(answers) == 1
    assert next(iter(answers))[0] == 401


@pytest.mark.parametrize("path", OPEN)
def test_open_paths_need_no_key_and_name_no_model(running: Running, path: str) -> None:
    found = running.ask(path, key="")
    assert found.status == 200
    assert b"vectors-ov" not in found.body and b"127.0.0.1" not in found.body


def test_a_key_under_the_wrong_scheme_is_refused(running: Running) -> None:
    found = running.ask("/v1/models", key="", headers={"Authorization": f"Basic {running.key}"})
    assert found.status == 401
    assert found.headers["www-authenticate"] == "Bearer"


def test_no_header_tells_what_runs_here(running: Running) -> None:
    headers = running.ask("/healthz", key="").headers
    assert "server" not in headers
    assert not [name for name in headers if "powered" in name]
