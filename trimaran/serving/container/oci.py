"""An OCI image whose only layer is a folder of files: written as a layout on disk, and read with its digests checked.

The layer is an uncompressed tar without times and owners. The same files therefore give the same digest, wherever and
whenever they are packed.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import tarfile
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from trimaran.core.artifact import sha256_of
from trimaran.core.errors import IntegrityError
from trimaran.core.store import publish, temporary_sibling, write_atomically

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
_INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
_CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar"
_TAG = "org.opencontainers.image.ref.name"
# Go's names, which OCI uses.
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
# Of the name of a file in a tar.
_NAME_BYTES = 1 << 16
_NOT_A_MANIFEST = (ValueError, KeyError, TypeError, RecursionError)
_HINT = "Get the image again from where it is sound."


class Image(NamedTuple):
    """An image in a layout."""

    layout: Path
    manifest: dict[str, Any]
    # sha256:… of the manifest, which names the image for good.
    digest: str

    def blob(self, digest: str) -> Path:
        return self.layout / "blobs" / digest.replace(":", "/")

    @property
    def blobs(self) -> list[str]:
        """The digests of everything but the manifest."""
        return [self.manifest["config"]["digest"], *(layer["digest"] for layer in self.manifest["layers"])]


def write_layout(layout: Path, files: Mapping[str, Path | bytes], *, tag: str, labels: Mapping[str, str]) -> Image:
    """Writes the image to a new folder. `files` are by their name in the image; one with several names is kept once."""
    with temporary_sibling(layout) as folder:
        blobs = folder / "blobs" / "sha256"
        blobs.mkdir(parents=True)
        _write_tar(blobs / "layer", files)
        layer = _descriptor(LAYER_TYPE, blobs / "layer")
        config = {
            "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": {"Labels": dict(labels)},
            "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": _json_blob(_CONFIG_TYPE, blobs, config),
            "layers": [layer],
            "annotations": dict(labels),
        }
        described = {**_json_blob(MANIFEST_TYPE, blobs, manifest), "annotations": {_TAG: tag}}
        index = {"schemaVersion": 2, "mediaType": _INDEX_TYPE, "manifests": [described]}
        (folder / "index.json").write_bytes(_json(index))
        (folder / "oci-layout").write_bytes(_json({"imageLayoutVersion": "1.0.0"}))
        publish(folder, layout)
    return Image(layout, manifest, described["digest"])


def read_layout(layout: Path) -> Image:
    """The image of a layout. Raises IntegrityError if a blob is missing or differs from its digest."""
    try:
        (described,) = json.loads((layout / "index.json").read_bytes())["manifests"]
        digest = require_plain_digest(described["digest"])
        text = (layout / "blobs" / digest.replace(":", "/")).read_bytes()
        image = Image(layout, manifest_of(text), digest)
        for name in (digest, *image.blobs):
            require_digest(image.blob(name), name)
    except (OSError, *_NOT_A_MANIFEST) as error:
        raise IntegrityError(f"{layout} is not a layout of one OCI image: {error}.", hint=_HINT) from error
    return image


def manifest_of(text: bytes) -> dict[str, Any]:
    """Raises IntegrityError for what is no manifest of an image, or names a blob by something else than its digest."""
    try:
        manifest: dict[str, Any] = json.loads(text)
        for part in (manifest["config"], *manifest["layers"]):
            require_plain_digest(part["digest"])
            if not isinstance(part["size"], int):
                raise TypeError(f"a size is {part['size']!r}")
        for layer in manifest["layers"]:
            str(layer["mediaType"])
    except _NOT_A_MANIFEST as error:
        raise IntegrityError(f"The manifest of the image cannot be read: {error!r:.200}.", hint=_HINT) from error
    return manifest


def require_plain_digest(digest: Any) -> str:
    """Raises ValueError for what could name another file than a blob."""
    if not isinstance(digest, str) or not re.fullmatch("sha256:[0-9a-f]{64}", digest):
        raise ValueError(f"it names a blob {digest!r:.100}, wanted sha256:…")
    return digest


def store_layout(layout: Path, manifest: bytes, *, tag: str) -> None:
    """Completes a folder that already has the blobs of a manifest."""
    blobs = layout / "blobs" / "sha256"
    described = {**_json_blob(MANIFEST_TYPE, blobs, manifest), "annotations": {_TAG: tag}}
    write_atomically(layout / "index.json", _json({"schemaVersion": 2, "manifests": [described]}).decode())
    (layout / "oci-layout").write_bytes(_json({"imageLayoutVersion": "1.0.0"}))


def unpack(image: Image, folder: Path) -> None:
    """The files of all layers. Names that lead out of the folder, symbolic links and devices are refused.

    So are files that are larger than their layer: a sparse one of a few bytes would be read for hours.
    """
    for layer in image.manifest["layers"]:
        if layer["mediaType"] != LAYER_TYPE:
            raise IntegrityError(
                f"A layer of {image.digest} is {layer['mediaType']}, wanted {LAYER_TYPE}.",
                hint="`trimaran pull` reads what `trimaran package` made.",
            )
        blob = image.blob(layer["digest"])
        try:
            _require_short_heads(blob)
            with tarfile.open(blob, "r:") as tar:
                _require_plain(tar, blob.stat().st_size)
                tar.extractall(folder, filter="data")
        except (tarfile.TarError, ValueError, OSError) as error:
            raise IntegrityError(f"A layer of {image.digest} cannot be unpacked: {error}.", hint=_HINT) from error


def _require_short_heads(blob: Path) -> None:
    """Raises ValueError for what `write_layout` does not write. tarfile reads a head into memory as a whole, such as
    one of pax, which can be as large as the layer.
    """
    with blob.open("rb") as tar:
        while block := tar.read(tarfile.BLOCKSIZE):
            try:
                entry = tarfile.TarInfo.frombuf(block, tarfile.ENCODING, "surrogateescape")
            except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
                return
            is_name = entry.type in (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
            if not (is_name or entry.type in (tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.LNKTYPE)):
                raise ValueError(f"{entry.name[:200]!r} is neither a file nor a folder")
            if entry.size < 0 or (is_name and entry.size > _NAME_BYTES):
                raise ValueError(f"an entry has {entry.size} bytes")
            if is_name or entry.isreg():
                tar.seek(-(-entry.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE, 1)


def _require_plain(tar: tarfile.TarFile, most_bytes: int) -> None:
    """Raises ValueError unless the tar holds files, folders and second names of its files alone.

    Python's own filter allows symbolic links, and chains of them lead out of the folder in Python before 3.11.13.
    """
    files: set[str] = set()
    size = 0
    for entry in tar:
        path = PurePosixPath(entry.name)
        if path.is_absolute() or ".." in path.parts or "\0" in entry.name:
            raise ValueError(f"{entry.name[:200]!r} leads out of the folder")
        if entry.type == tarfile.REGTYPE:
            size += entry.size
            files.add(entry.name)
        elif not (entry.isdir() or (entry.type == tarfile.LNKTYPE and entry.linkname in files)):
            raise ValueError(f"{entry.name[:200]!r} is neither a file nor a folder")
    if size > most_bytes:
        raise ValueError(f"its files have {size} bytes and the layer {most_bytes}")


def require_digest(path: Path, digest: str) -> None:
    if digest != f"sha256:{sha256_of(path)}":
        raise IntegrityError(f"{path} differs from its digest {digest[:19]}….", hint=_HINT, path=str(path))


def _write_tar(path: Path, files: Mapping[str, Path | bytes]) -> None:
    names: dict[tuple[int, int], str] = {}
    with tarfile.open(path, "w:", format=tarfile.GNU_FORMAT) as tar:
        folders = {str(parent) for name in files for parent in Path(name).parents if parent.name}
        for name in sorted(folders | set(files)):
            entry = tarfile.TarInfo(name)
            entry.mode = 0o755 if name in folders else 0o644
            if name in folders:
                entry.type = tarfile.DIRTYPE
                tar.addfile(entry)
                continue
            content = files[name]
            if isinstance(content, bytes):
                entry.size = len(content)
                tar.addfile(entry, BytesIO(content))
                continue
            facts = content.stat()
            first = names.setdefault((facts.st_dev, facts.st_ino), name)
            if first != name:
                # The stages of a model share one copy of its weights.
                entry.type, entry.linkname = tarfile.LNKTYPE, first
                tar.addfile(entry)
                continue
            entry.size = facts.st_size
            with content.open("rb") as stream:
                tar.addfile(entry, stream)


def _descriptor(media_type: str, blob: Path) -> dict[str, Any]:
    """Names the blob by its digest."""
    digest = sha256_of(blob)
    size = blob.stat().st_size
    blob.rename(blob.parent / digest)
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": size}


def _json_blob(media_type: str, blobs: Path, content: dict[str, Any] | bytes) -> dict[str, Any]:
    data = content if isinstance(content, bytes) else _json(content)
    digest = hashlib.sha256(data).hexdigest()
    (blobs / digest).write_bytes(data)
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}


def _json(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
