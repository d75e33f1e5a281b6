"""A model travels as an OCI image: the same bits arrive, or nothing does."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.tiny import tiny_artifact
from trimaran.core.errors import IntegrityError, RepositoryError, RequestFailed, UsageError
from trimaran.model_repository.check import problems
from trimaran.model_repository.layout import lay_out
from trimaran.model_repository.versions import model_versions
from trimaran.pipeline.package import Packaged, package, pull
from trimaran.serving.container.oci import read_layout
from trimaran.serving.container.registry import reference_of

PASSWORD = base64.b64encode(b"user:secret").decode()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for _ in range(2):
        lay_out(tiny_artifact(tmp_path / "s"), repository=tmp_path / "r", name="m", rows="alone", threads=1)
    return tmp_path / "r"


def packed(repository: Path, version: int = 1, *, layout: str = "image", **options: object) -> Packaged:
    given = {"tag": "example.com/models/m:1", "sign": None, "to_registry": False, **options}
    return package(repository, "m", version, layout=repository.parent / layout, **given)  # type: ignore[arg-type]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_is_pulled_is_what_was_packaged_and_is_served(repository: Path, tmp_path: Path) -> None:
    made = packed(repository, 2)
    pulled, stage = pull(str(made.layout), tmp_path / "there", trust_key=None)
    assert (pulled.name, pulled.version, pulled.digest) == ("m", 2, made.digest)
    assert (stage.name, stage.version) == ("m_onnxruntime", 2), "the stages of a model travel with it"
    assert contents(tmp_path / "there" / "m" / "2") == contents(repository / "m" / "2")
    assert not problems(tmp_path / "there")
    assert model_versions(tmp_path / "there", "m").served == (2,)
    assert {path.name for path in (tmp_path / "there").iterdir() if path.is_dir()} == {"m", "m_onnxruntime"}


def test_the_next_version_of_a_known_model_waits_for_its_promotion(repository: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    pull(str(packed(repository, 1).layout), there, trust_key=None)
    second = packed(repository, 2, layout="second")
    assert [pull(str(second.layout), there, trust_key=None)[0].known for _ in range(2)] == [False, True]
    found = model_versions(there, "m")
    assert (found.versions, found.served) == ((1, 2), (1,))
    (there / "m" / "2" / "digests.json").write_text("{}")
    with pytest.raises(RepositoryError, match="its files are others"):
        pull(str(second.layout), there, trust_key=None)


def test_the_digest_depends_on_the_files_alone(repository: Path) -> None:
    first = packed(repository)
    for path in (repository / "m").rglob("*"):
        os.utime(path, (1, 1))
    assert packed(repository, layout="again").digest == first.digest
    assert packed(repository, 2, layout="other").digest != first.digest


def test_a_file_with_two_names_is_packed_once(repository: Path) -> None:
    image = read_layout(packed(repository).layout)
    with tarfile.open(image.blob(image.manifest["layers"][0]["digest"])) as tar:
        links = [entry.name for entry in tar if entry.islnk()]
        owners = {(entry.uid, entry.mtime) for entry in tar}
    assert (links, owners) == (["models/m_onnxruntime/1/model.onnx"], {(0, 0)})


def test_a_damaged_image_changes_nothing(repository: Path, tmp_path: Path) -> None:
    made = packed(repository)
    image = read_layout(made.layout)
    layer = image.blob(image.manifest["layers"][0]["digest"])
    layer.write_bytes(layer.read_bytes()[:-1] + b"x")
    with pytest.raises(IntegrityError, match="differs from its digest"):
        pull(str(made.layout), tmp_path / "there", trust_key=None)
    assert contents(tmp_path / "there").keys() <= {".lock"}


def test_only_what_is_signed_with_the_key_is_taken(repository: Path, tmp_path: Path) -> None:
    keys = {}
    for name in ("ours", "theirs"):
        keys[name] = tmp_path / f"{name}.pem"
        made = subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", str(keys[name])], check=False)
        if made.returncode:
            pytest.skip("openssl made no key")
        public = ["openssl", "pkey", "-in", str(keys[name]), "-pubout", "-out", str(tmp_path / f"{name}.pub")]
        subprocess.run(public, check=True)
    signed = packed(repository, sign=keys["ours"])
    assert not (repository / "m" / "1" / "digests.sig").exists(), "the repository stays as it is"
    with pytest.raises(IntegrityError, match="not signed with this key"):
        pull(str(signed.layout), tmp_path / "there", trust_key=tmp_path / "theirs.pub")
    with pytest.raises(IntegrityError, match="is not signed"):
        pull(str(packed(repository, layout="plain").layout), tmp_path / "there", trust_key=tmp_path / "ours.pub")
    assert pull(str(signed.layout), tmp_path / "there", trust_key=tmp_path / "ours.pub")


@dataclass
class Registry:
    """As much of the distribution API as docker's own registry answers, behind a token."""

    port: int = 0
    blobs: dict[str, bytes] = field(default_factory=dict)
    manifests: dict[str, bytes] = field(default_factory=dict)
    uploads: int = 0


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    state = Registry()

    class Handler(BaseHTTPRequestHandler):
        def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.path.startswith("/token"):
                known = self.headers.get("Authorization") == f"Basic {PASSWORD}"
                self.answer(200 if known else 403, json.dumps({"token": "t"}).encode())
                return
            if self.headers.get("Authorization") != "Bearer t":
                place = f'Bearer realm="http://localhost:{state.port}/token",service="s",scope="repository:m:pull,push"'
                self.answer(401, WWW_Authenticate=place)
                return
            name = self.path.partition("?")[0].rpartition("/")[2]
            if self.command == "POST":
                self.answer(202, Location="/v2/models/m/blobs/uploads/1?state=a")
            elif self.command == "PUT" and "/uploads/" in self.path:
                digest = self.path.partition("digest=")[2]
                assert digest == f"sha256:{hashlib.sha256(body).hexdigest()}"
                state.blobs[digest], state.uploads = body, state.uploads + 1
                self.answer(201)
            elif self.command == "PUT":
                state.manifests |= {name: body, f"sha256:{hashlib.sha256(body).hexdigest()}": body}
                self.answer(201)
            else:
                found = (state.manifests if "/manifests/" in self.path else state.blobs).get(name)
                self.answer(404 if found is None else 200, found or b"")

        do_GET = do_HEAD = do_POST = do_PUT = handle_any

        def log_message(self, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("localhost", 0), Handler) as server:
        state.port = server.server_address[1]
        auths = {"auths": {f"localhost:{state.port}": {"auth": PASSWORD}}}
        (tmp_path / "docker").mkdir()
        (tmp_path / "docker" / "config.json").write_text(json.dumps(auths))
        monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield state
        server.shutdown()


def test_an_image_goes_to_a_registry_and_comes_back_by_digest(
    registry: Registry, repository: Path, tmp_path: Path
) -> None:
    tag = f"localhost:{registry.port}/models/m:1"
    made = packed(repository, tag=tag, to_registry=True)
    assert made.pushed == f"localhost:{registry.port}/models/m@{made.digest}"
    sent = registry.uploads
    packed(repository, tag=tag, to_registry=True, layout="again")
    assert registry.uploads == sent, "what the registry has is not sent again"
    for source in (tag, made.pushed):
        pull(source, tmp_path / "there", trust_key=None)
    assert contents(tmp_path / "there" / "m" / "1") == contents(repository / "m" / "1")
    with pytest.raises(RequestFailed, match="404"):
        pull(f"localhost:{registry.port}/models/m:9", tmp_path / "there", trust_key=None)
    registry.manifests[made.digest] = registry.manifests["1"] + b" "
    with pytest.raises(IntegrityError, match="wanted sha256"):
        pull(made.pushed, tmp_path / "there", trust_key=None)


@pytest.mark.parametrize("text", ["minilm", "http://x/y", "x.y/UPPER:1", "x.y/a@sha256:12", ""])
def test_a_name_without_a_registry_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="does not name an image"):
        reference_of(text)


def test_the_served_versions_of_an_object_store_are_pulled_whole_or_not_at_all(
    repository: Path, tmp_path: Path
) -> None:
    import fsspec

    store = fsspec.filesystem("memory")
    store.put(str(repository), "/pulled-bucket/models", recursive=True)
    there = tmp_path / "there"
    try:
        first, stage = pull("memory://pulled-bucket/models", there, trust_key=None)
        assert (first.name, first.version, first.digest, first.known) == ("m", 1, "", False)
        assert (stage.name, stage.version) == ("m_onnxruntime", 1)
        assert contents(there / "m" / "1") == contents(repository / "m" / "1") and not problems(there)
        assert all(pulled.known for pulled in pull("memory://pulled-bucket/models", there, trust_key=None))
        graph = next(path for path in store.find("/pulled-bucket") if path.endswith(".onnx"))
        store.pipe_file(graph, store.cat_file(graph)[:-1] + b"?")
        with pytest.raises(IntegrityError, match=r"differs from digests.json"):
            pull("memory://pulled-bucket/models", tmp_path / "elsewhere", trust_key=None)
        assert not list((tmp_path / "elsewhere").iterdir())
    finally:
        store.rm("/pulled-bucket", recursive=True)
