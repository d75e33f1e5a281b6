"""An image of a stranger: chains of links led `pull` out of the repository, even before its signature was compared."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.tiny import tiny_artifact
from trimaran.core.errors import IntegrityError, UnavailableError
from trimaran.model_repository.layout import lay_out
from trimaran.model_repository.seal import seal
from trimaran.pipeline.package import pull
from trimaran.serving.container.oci import LAYER_TYPE, MANIFEST_TYPE

Entry = tuple[str, bytes, str]


def chain_of_links(tar: tarfile.TarFile) -> None:
    """CVE-2025-4517: names become too long to be resolved, so Python's filter does not see where they lead."""
    folder, steps, long = "", "abcdefghijklmnop", "d" * 247
    for step in steps:
        add(tar, (f"{folder}{long}", tarfile.DIRTYPE, ""))
        add(tar, (f"{folder}{step}", tarfile.SYMTYPE, long))
        folder = f"{folder}{long}/"
    far = "/".join((*steps, "l" * 254))
    add(tar, (far, tarfile.SYMTYPE, "../" * len(steps)))
    # The layer is unpacked three folders below the one that holds `secret`.
    add(tar, ("out", tarfile.SYMTYPE, far + "/../../.."))
    add(tar, ("link", tarfile.LNKTYPE, "out/secret"))
    add(tar, ("link", tarfile.REGTYPE, ""), b"owned")


def add(tar: tarfile.TarFile, entry: Entry, content: bytes = b"") -> None:
    info = tarfile.TarInfo(entry[0])
    info.type, info.linkname, info.size = entry[1], entry[2], len(content)
    tar.addfile(info, io.BytesIO(content))


def sparse(tar: tarfile.TarFile) -> None:
    """A file of 512 bytes in the tar that is 8 TB when it is read."""
    info = tarfile.TarInfo("models/m/1/model.onnx")
    info.size = 0
    info.pax_headers = {
        "GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.size": str(8 << 40),
        "GNU.sparse.map": f"{8 << 40},0",
    }  # fmt: skip
    tar.addfile(info)


def long_head(tar: tarfile.TarFile) -> None:
    """A note of 2 MB at a file; tarfile would read one of 20 GB into memory, too."""
    info = tarfile.TarInfo("models/m/config.pbtxt")
    info.pax_headers = {"comment": "a" * (2 << 20)}
    tar.addfile(info)


def long_name(tar: tarfile.TarFile) -> None:
    head = tarfile.TarInfo("././@LongLink")
    head.type, head.size = tarfile.GNUTYPE_LONGNAME, 2 << 20
    tar.addfile(head, io.BytesIO(b"a" * head.size))
    add(tar, ("x", tarfile.REGTYPE, ""))


HOSTILE: dict[str, Callable[[tarfile.TarFile], None]] = {
    "a chain of links": chain_of_links,
    "a link inside": lambda tar: add(tar, ("models/m/1/model.onnx", tarfile.SYMTYPE, "../../x")),
    "a link outside": lambda tar: add(tar, ("x", tarfile.SYMTYPE, "/etc")),
    "a second name of a file outside": lambda tar: add(tar, ("x", tarfile.LNKTYPE, "../../../secret")),
    "two dots": lambda tar: add(tar, ("models/../../../../secret", tarfile.REGTYPE, ""), b"owned"),
    "an absolute name": lambda tar: add(tar, ("/tmp/x", tarfile.REGTYPE, ""), b"owned"),
    "a pipe": lambda tar: add(tar, ("models/m/config.pbtxt", tarfile.FIFOTYPE, "")),
    "a device": lambda tar: add(tar, ("models/m/config.pbtxt", tarfile.CHRTYPE, "")),
    "a sparse file": sparse,
    "a head of pax": long_head,
    "a long name": long_name,
}


def layout_of(folder: Path, layer: bytes, **changes: Any) -> Path:
    """An image with this layer, as a layout on disk; `changes` are of its manifest."""
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def blob(data: bytes) -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()
        (blobs / digest).write_bytes(data)
        return {"digest": f"sha256:{digest}", "size": len(data)}

    manifest = {"config": blob(b"{}"), "layers": [{**blob(layer), "mediaType": LAYER_TYPE}], **changes}
    (folder / "index.json").write_text(json.dumps({"manifests": [blob(json.dumps(manifest).encode())]}))
    return folder


@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_layer_holds_files_and_folders_alone(tmp_path: Path, hostile: str) -> None:
    (tmp_path / "secret").write_text("untouched")
    tar_file = io.BytesIO()
    with tarfile.open(fileobj=tar_file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        HOSTILE[hostile](tar)
    with pytest.raises(IntegrityError, match="cannot be unpacked"):
        pull(str(layout_of(tmp_path / "image", tar_file.getvalue())), tmp_path / "r", trust_key=None)
    assert (tmp_path / "secret").read_text() == "untouched"
    assert not list((tmp_path / "r").iterdir())


MANIFESTS: dict[str, Any] = {
    "a blob outside": {"layers": [{"digest": "sha256:../../../secret", "mediaType": LAYER_TYPE, "size": 1}]},
    "no layers": {"layers": None},
    "a layer without a size": {"layers": [{"digest": f"sha256:{'0' * 64}", "mediaType": LAYER_TYPE}]},
    "a config that is a list": {"config": [1]},
}


@pytest.mark.parametrize("manifest", MANIFESTS)
def test_a_manifest_that_makes_no_sense_is_damage(tmp_path: Path, manifest: str) -> None:
    layout = layout_of(tmp_path / "image", b"", **MANIFESTS[manifest])
    with pytest.raises(IntegrityError):
        pull(str(layout), tmp_path / "r", trust_key=None)
    (layout / "index.json").write_text('{"manifests":' + "[" * 100_000)
    with pytest.raises(IntegrityError):
        pull(str(layout), tmp_path / "r", trust_key=None)


class Hostile(BaseHTTPRequestHandler):
    """Sends blobs without end, and asks for the password at another address."""

    heard: tuple[str, ...] = ()
    sent_bytes = 0
    elsewhere = ""

    def do_GET(self) -> None:
        kind = type(self)
        kind.heard += (f"{self.headers['Host']} {self.headers.get('Authorization', '')}",)
        if "moved" in self.path and self.headers["Host"] not in kind.elsewhere:
            if "Authorization" not in self.headers:
                self.send_response(401)
                self.send_header("WWW-Authenticate", "Basic")
            else:
                self.send_response(307)
                self.send_header("Location", f"{kind.elsewhere}{self.path}")
            self.end_headers()
            return
        if "guarded" in self.path:
            self.send_response(401)
            realm = f"http://{self.headers['Host']}/endless-token"
            self.send_header("WWW-Authenticate", f'Bearer realm="{realm}",service="a"')
            self.end_headers()
            return
        self.send_response(200)
        self.end_headers()
        if "/manifests/" in self.path and "endless" not in self.path:
            part = {"digest": f"sha256:{'0' * 64}", "size": 1000, "mediaType": LAYER_TYPE}
            self.wfile.write(json.dumps({"mediaType": MANIFEST_TYPE, "config": part, "layers": [part]}).encode())
            return
        try:
            while kind.sent_bytes < 1 << 30:
                kind.sent_bytes += self.wfile.write(b" " * 65536)
        except OSError:
            pass

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, type[Hostile]]]:
    class Handler(Hostile):
        pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        port = server.server_address[1]
        Handler.elsewhere = f"http://localhost:{port}"
        auths = {"auths": {f"127.0.0.1:{port}": {"auth": "dXNlcjpzZWNyZXQ="}}}
        (tmp_path / "config.json").write_text(json.dumps(auths))
        monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{port}", Handler
        server.shutdown()


@pytest.mark.parametrize("name", ["endless", "m", "guarded"])
def test_a_registry_cannot_fill_memory_or_disk(registry: tuple[str, type[Hostile]], tmp_path: Path, name: str) -> None:
    """By a manifest, a blob or a token without end."""
    address, handler = registry
    with pytest.raises(UnavailableError if name == "guarded" else IntegrityError):
        pull(f"{address}/{name}:1", tmp_path / "r", trust_key=None)
    assert handler.sent_bytes < 64 << 20
    assert not list((tmp_path / "r").iterdir())


def test_the_password_of_a_registry_is_not_sent_to_where_it_redirects(
    registry: tuple[str, type[Hostile]], tmp_path: Path
) -> None:
    address, handler = registry
    with pytest.raises(IntegrityError):
        pull(f"{address}/moved:1", tmp_path / "r", trust_key=None)
    heard = set(handler.heard)
    assert f"{address} Basic dXNlcjpzZWNyZXQ=" in heard
    assert {line for line in heard if line.startswith("localhost")} == {f"{handler.elsewhere[7:]} "}


def test_nothing_but_what_was_signed_is_published(tmp_path: Path) -> None:
    """An unsigned version, or a backend of Triton, beside the signed version came along."""
    private, public = tmp_path / "key.pem", tmp_path / "key.pub"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", private], check=True, capture_output=True)
    subprocess.run(["openssl", "pkey", "-in", private, "-pubout", "-out", public], check=True, capture_output=True)
    source = tmp_path / "unpacked" / "models"
    lay_out(tiny_artifact(tmp_path / "s"), repository=source, name="m", rows="padded", threads=1)
    seal(source, key=private)
    for model in ("m", "m_onnxruntime"):
        shutil.copytree(source / model / "1", source / model / "2")
        (source / model / "2" / "model.py").write_text("raise SystemExit")
        (source / model / "libtriton_python.so").touch()
        (source / model / "1" / "__pycache__").mkdir()
        (source / model / "1" / "__pycache__" / "model.cpython-311.pyc").touch()
    tar_file = io.BytesIO()
    with tarfile.open(fileobj=tar_file, mode="w", format=tarfile.GNU_FORMAT) as tar:
        tar.add(tmp_path / "unpacked", arcname=".")
    layout = layout_of(tmp_path / "image", tar_file.getvalue())
    pull(str(layout), tmp_path / "r", trust_key=public)
    for model in ("m", "m_onnxruntime"):
        assert {path.name for path in (tmp_path / "r" / model).iterdir()} <= {"1", "config.pbtxt", "warmup"}
        assert not (tmp_path / "r" / model / "1" / "__pycache__").exists()
