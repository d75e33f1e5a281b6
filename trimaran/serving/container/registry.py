"""Pushes an OCI image to a registry, and pulls it, by the distribution API: no docker and no daemon."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from trimaran.core.errors import IntegrityError, RequestFailed, UnavailableError, UsageError
from trimaran.core.store import publish, temporary_sibling
from trimaran.serving.container.oci import MANIFEST_TYPE, Image, manifest_of, read_layout, require_digest, store_layout

_TIMEOUT_S = 300.0
# The most that registries themselves take.
_MANIFEST_BYTES = 4 << 20
_TOKEN_BYTES = 1 << 20
_REFERENCE = re.compile(
    r"(?P<registry>[\w.-]+(?::\d+)?)/(?P<repository>[a-z0-9._/-]+?)(?::(?P<tag>[\w.-]+))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


class Reference(NamedTuple):
    """Where an image is in a registry, such as `registry.example/models/minilm:3`."""

    registry: str
    repository: str
    tag: str
    # sha256:…; empty when only the tag is given.
    digest: str

    @property
    def base(self) -> str:
        """Registries on this machine speak plain HTTP, as for docker."""
        scheme = "http" if self.registry.rpartition(":")[0] in _LOOPBACK or self.registry in _LOOPBACK else "https"
        return f"{scheme}://{self.registry}/v2/{self.repository}"


def reference_of(text: str) -> Reference:
    """Raises UsageError."""
    match = _REFERENCE.fullmatch(text)
    if match is None:
        raise UsageError(
            f"{text!r} does not name an image in a registry.", hint="Write it as registry.example/models/minilm:3."
        )
    tag = match["tag"] or ("" if match["digest"] else "latest")
    return Reference(match["registry"], match["repository"], tag, match["digest"] or "")


def push(image: Image, reference: Reference) -> str:
    """Blobs that the registry has are not sent again. Returns the reference by digest, which never changes."""
    session = _Session(reference)
    for digest in image.blobs:
        if session.has(f"/blobs/{digest}"):
            continue
        with session.asked("POST", "/blobs/uploads/", data=b"") as answer:
            location = urllib.parse.urljoin(answer.url, answer.headers["Location"])
        separator = "&" if "?" in location else "?"
        path = image.blob(digest)
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(path.stat().st_size)}
        with path.open("rb") as stream:
            with session.asked("PUT", f"{location}{separator}digest={digest}", data=stream, headers=headers):
                pass
    manifest = image.blob(image.digest).read_bytes()
    tag = reference.tag or image.digest
    with session.asked("PUT", f"/manifests/{tag}", data=manifest, headers={"Content-Type": MANIFEST_TYPE}):
        pass
    return f"{reference.registry}/{reference.repository}@{image.digest}"


def pull(reference: Reference, layout: Path) -> Image:
    """Raises IntegrityError if something that comes differs from its digest."""
    session = _Session(reference)
    with temporary_sibling(layout) as folder:
        blobs = folder / "blobs" / "sha256"
        blobs.mkdir(parents=True)
        wanted = reference.digest or reference.tag
        with session.asked("GET", f"/manifests/{wanted}", headers={"Accept": MANIFEST_TYPE}) as answer:
            text = answer.read(_MANIFEST_BYTES)
        manifest = manifest_of(text)
        store_layout(folder, text, tag=reference.tag)
        if reference.digest:
            (entry,) = json.loads((folder / "index.json").read_bytes())["manifests"]
            if entry["digest"] != reference.digest:
                raise IntegrityError(f"{reference.registry} gave {entry['digest']}, wanted {reference.digest}.")
        for part in (manifest["config"], *manifest["layers"]):
            path = blobs / part["digest"].removeprefix("sha256:")
            with session.asked("GET", f"/blobs/{part['digest']}") as answer, path.open("wb") as stream:
                _copy(answer, stream, part["size"])
            require_digest(path, part["digest"])
        publish(folder, layout)
    return read_layout(layout)


def _copy(answer: Any, stream: Any, size: int) -> None:
    """The announced bytes and one more: a blob without end does not fill the disk, and has another digest."""
    left = size + 1
    while left > 0 and (part := answer.read(min(left, 1 << 20))):
        stream.write(part)
        left -= len(part)


class _SameServer(urllib.request.HTTPRedirectHandler):
    """Follows redirects, as to the object store of a registry. The password is for the registry alone."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        if req.full_url.startswith("https://") and not newurl.startswith("https://"):
            raise urllib.error.HTTPError(newurl, code, "a redirect to what is not HTTPS", headers, fp)
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        if request is not None and request.host != req.host:
            request.remove_header("Authorization")
        return request


_OPENER = urllib.request.build_opener(_SameServer)


class _Session:
    """Requests to one repository of a registry, with a token once it asks for one."""

    def __init__(self, reference: Reference) -> None:
        self._reference = reference
        self._authorization = ""

    def has(self, path: str) -> bool:
        try:
            with self.asked("HEAD", path):
                return True
        except RequestFailed as error:
            if error.status == 404:
                return False
            raise

    @contextlib.contextmanager
    def asked(
        self, method: str, path: str, *, data: Any = None, headers: Mapping[str, str] | None = None
    ) -> Iterator[Any]:
        """Raises RequestFailed with the registry's status, or UnavailableError if it does not answer."""
        url = path if "://" in path else f"{self._reference.base}{path}"
        try:
            answer = self._sent(method, url, data, dict(headers or {}))
        except urllib.error.HTTPError as error:
            url_path = urllib.parse.urlsplit(url).path
            raise RequestFailed(
                f"{self._reference.registry} refused {method} {url_path}: {error.code} {error.reason}.",
                hint="Check the name and your rights; `docker login` stores a password.",
                status=error.code,
            ) from error
        except OSError as error:
            raise UnavailableError(f"The registry {self._reference.registry} does not answer: {error}.") from error
        with answer:
            yield answer

    def _sent(self, method: str, url: str, data: Any, headers: dict[str, str]) -> Any:
        for attempt in (1, 2):
            if self._authorization:
                headers["Authorization"] = self._authorization
            request = urllib.request.Request(url, data=data, headers=headers, method=method)  # noqa: S310
            try:
                return _OPENER.open(request, timeout=_TIMEOUT_S)
            except urllib.error.HTTPError as error:
                if error.code != 401 or attempt == 2:
                    raise
                self._authorization = self._answer_to(error.headers.get("WWW-Authenticate", ""))
                if hasattr(data, "seek"):
                    data.seek(0)
        raise AssertionError("the loop ends by return or raise")

    def _answer_to(self, challenge: str) -> str:
        """`Basic`, or a token from the server that the registry names."""
        secret = _stored_password(self._reference.registry)
        basic = {"Authorization": f"Basic {secret}"} if secret else {}
        if not challenge.lower().startswith("bearer"):
            return basic.get("Authorization", "")
        facts = dict(_CHALLENGE.findall(challenge))
        realm = facts.pop("realm", "")
        if not realm.startswith("https://") and not self._reference.base.startswith("http://"):
            raise UnavailableError(
                f"{self._reference.registry} wants a password sent to {realm!r}, which is not HTTPS."
            )
        request = urllib.request.Request(f"{realm}?{urllib.parse.urlencode(facts)}", headers=basic)  # noqa: S310
        with _OPENER.open(request, timeout=_TIMEOUT_S) as answer:
            text = answer.read(_TOKEN_BYTES)
        try:
            token = json.loads(text)
            return f"Bearer {token.get('token') or token.get('access_token', '')}"
        except (ValueError, AttributeError, RecursionError) as error:
            raise UnavailableError(f"{self._reference.registry} gave no token that can be read.") from error


def _stored_password(registry: str) -> str:
    """What `docker login` stored, in base64; empty without one. Helpers of the system's keychain are not asked."""
    folder = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker")
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        stored = json.loads((folder / "config.json").read_bytes())["auths"][registry]["auth"]
        base64.b64decode(stored, validate=True)
        return str(stored)
    return ""
