"""A repository in an object store is read as a folder would be: small files only, again when they changed."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from tests.tiny import tiny_artifact
from trimaran.core import remote_repository
from trimaran.core.errors import IntegrityError, UnavailableError, UsageError
from trimaran.core.remote_repository import RemoteRepository, is_remote, repository_folder
from trimaran.core.repository import models_in
from trimaran.model_repository.layout import lay_out
from trimaran.model_repository.versions import pin


@pytest.fixture
def local(tmp_path: Path) -> Path:
    lay_out(tiny_artifact(tmp_path / "s"), repository=tmp_path / "r", name="m", rows="alone", threads=1)
    return tmp_path / "r"


@pytest.fixture
def bucket(local: Path) -> Iterator[str]:
    """The repository in a store of its own, in the memory of this process."""
    url = f"memory://{uuid.uuid4().hex}/models"
    upload(local, url)
    yield url
    fsspec.filesystem("memory").rm(url.removesuffix("/models"), recursive=True)


def upload(folder: Path, url: str) -> None:
    store, root = fsspec.core.url_to_fs(url)
    for path in folder.rglob("*"):
        if path.is_file():
            store.pipe_file(f"{root}/{path.relative_to(folder)}", path.read_bytes())


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_a_copy_has_what_the_gateway_and_verify_read_and_no_weights(local: Path, bucket: str) -> None:
    with repository_folder(bucket) as folder:
        assert [(model.name, model.served) for model in models_in(folder)] == [("m", (1,)), ("m_onnxruntime", (1,))]
        copied = files(folder)
        assert {"m/config.pbtxt", "m/1/serving.json", "m/1/tokenizer.json"} <= copied < files(local)
        assert all(name.endswith((".json", ".pbtxt")) for name in copied)
        assert all((folder / name).read_bytes() == (local / name).read_bytes() for name in copied)
    assert not folder.exists()


def test_a_folder_is_taken_as_it_is(local: Path) -> None:
    with repository_folder(local) as folder:
        assert folder == local
    assert not is_remote(local) and is_remote("s3://bucket/models")


def test_a_version_that_triton_has_is_looked_for_at_once_and_the_rest_after_a_minute(
    local: Path, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = RemoteRepository(bucket, tmp_path / "copy")
    remote.renew({"m": 1})
    lay_out(tiny_artifact(tmp_path / "s"), repository=local, name="m", rows="alone", threads=1)
    pin(local, "m", 2)
    upload(local, bucket)
    remote.renew({"m": 1})
    assert not (remote.folder / "m" / "2").exists(), "nothing asks for it yet"
    remote.renew({"m": 2})
    assert models_in(remote.folder)[0].served == (2,)
    (tmp_path / "copy" / "m" / "2" / "tokenizer.json").unlink()
    remote.renew({"m": 2, "somebody else's": 7})
    assert not (tmp_path / "copy" / "m" / "2" / "tokenizer.json").exists(), "what did not change is not read again"
    store, root = fsspec.core.url_to_fs(bucket)
    store.rm(f"{root}/m/1", recursive=True)
    remote.renew({"m": 2, "somebody else's": 7})
    assert (remote.folder / "m" / "1" / "serving.json").exists(), "a version that is nowhere is looked for once"
    monkeypatch.setattr(remote_repository, "_RENEW_S", 0.0)
    remote.renew({"m": 2})
    assert not (remote.folder / "m" / "1" / "serving.json").exists()


def test_a_damaged_file_is_refused_and_taken_away(bucket: str, tmp_path: Path) -> None:
    store, root = fsspec.core.url_to_fs(bucket)
    whole = store.cat_file(f"{root}/m/1/tokenizer.json")
    store.pipe_file(f"{root}/m/1/tokenizer.json", whole.replace(b"cat", b"dog", 1))
    remote = RemoteRepository(bucket, tmp_path / "copy")
    with pytest.raises(IntegrityError, match=r"m/1/tokenizer.json differs from digests.json"):
        remote.copy()
    assert not (tmp_path / "copy" / "m" / "1" / "tokenizer.json").exists()
    store.pipe_file(f"{root}/m/1/tokenizer.json", whole)
    remote.copy()
    assert (tmp_path / "copy" / "m" / "1" / "tokenizer.json").read_bytes() == whole


def test_a_name_cannot_leave_the_folder(bucket: str, tmp_path: Path) -> None:
    store, root = fsspec.core.url_to_fs(bucket)
    # The store of a stranger lists what it likes.
    store.store[f"{root}/../outside.json"] = store.store[f"{root}/m/1/serving.json"]
    try:
        RemoteRepository(bucket, tmp_path / "copy").copy()
    finally:
        del store.store[f"{root}/../outside.json"]
    assert not (tmp_path / "outside.json").exists()


def test_a_store_that_is_away_leaves_what_was_read(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    remote = RemoteRepository(bucket, tmp_path / "copy")
    remote.copy()

    def refuse(*_: object, **__: object) -> None:
        raise ConnectionError("nobody listens")

    monkeypatch.setattr(remote, "_store", type("Away", (), {"invalidate_cache": refuse, "find": refuse})())
    with pytest.raises(UnavailableError, match="cannot be read: nobody listens"):
        remote.copy()
    with caplog.at_level(logging.WARNING):
        remote.renew({"m": 9})
    assert "What was read before is used" in caplog.text and models_in(remote.folder)


@pytest.mark.parametrize(
    ("url", "error", "sentence"),
    [
        ("memory://nothing/here", UsageError, "holds no model|does not exist"),
        ("nonsense://bucket/models", UsageError, "is not an address that can be read"),
    ],
)
def test_what_cannot_be_read_is_said(url: str, error: type[Exception], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=sentence):
        RemoteRepository(url, tmp_path / "copy").copy()


@pytest.mark.parametrize(
    ("url", "endpoint", "path"),
    [
        ("s3://bucket/models", None, "s3://bucket/models"),
        ("s3://http://127.0.0.1:9000/bucket/models", "http://127.0.0.1:9000", "s3://bucket/models"),
        ("s3://https://minio:9000/bucket/models", "https://minio:9000", "s3://bucket/models"),
        ("s3://minio:9000/bucket/models", "http://minio:9000", "s3://bucket/models"),
    ],
)
def test_addresses_are_written_as_triton_takes_them(
    url: str, endpoint: str | None, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []

    def note(address: str, **options: str) -> tuple[object, str]:
        opened.append((address, options.get("endpoint_url")))
        return object(), "bucket/models"

    monkeypatch.setattr("fsspec.core.url_to_fs", note)
    RemoteRepository(url, tmp_path)
    assert opened == [(path, endpoint)]
