"""One version of a model as an OCI image that holds nothing but its part of the repository, and back.

`pull` also takes the served versions of a repository in an object store.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from trimaran.core.config_pbtxt import CONFIG_FILE, pbtxt_from_config, read_config
from trimaran.core.digests import DIGESTS_FILE, SIGNATURE_FILE, require_undamaged
from trimaran.core.errors import RepositoryError, UsageError
from trimaran.core.model_config import RELEASE
from trimaran.core.remote_repository import RemoteRepository, everything, is_remote
from trimaran.core.repository import RepositoryModel, models_in
from trimaran.core.signatures import require_signed, signature_of
from trimaran.core.spec import Frozen
from trimaran.core.store import locked, publish, temporary_sibling
from trimaran.model_repository.check import problems_of_version
from trimaran.model_repository.versions import model_versions, models_beside, serving_only
from trimaran.model_repository.warmups import WARMUP_FOLDER
from trimaran.serving.container.oci import read_layout, unpack, write_layout
from trimaran.serving.container.registry import pull as pull_image
from trimaran.serving.container.registry import push, reference_of

# Where the repository is in the image.
_FOLDER = "models"


class Packaged(Frozen):
    name: str
    version: int
    tag: str
    # sha256:… of the image.
    digest: str
    layout: Path
    # The image by its digest in the registry; empty when it was not pushed.
    pushed: str


class Pulled(Frozen):
    name: str
    version: int
    # Of the image; empty for a version that came from an object store.
    digest: str
    repository: Path
    # Whether the repository had the version already.
    known: bool


def package(
    repository: Path, name: str, version: int | None, *, tag: str, layout: Path, sign: Path | None, to_registry: bool
) -> Packaged:
    """Writes the served version, or the one that is named, as an OCI layout, and sends it `to_registry`.

    With `sign`, a private key, the digest lists in the image are signed. The repository stays as it is.
    """
    reference = reference_of(tag)
    facts = model_versions(repository, name)
    chosen = version or (facts.served[-1] if facts.served else 0)
    if chosen not in facts.versions:
        known = ", ".join(map(str, facts.versions)) or "none"
        raise UsageError(f"{name} has no version {chosen}.", hint=f"There are: {known}.")
    if layout.exists():
        raise UsageError(f"{layout} exists already.", hint="Remove it, or give another -o.")
    folder = repository / name / str(chosen)
    require_undamaged(folder, read_config(repository / name / CONFIG_FILE))
    if sign is not None and not (folder / DIGESTS_FILE).is_file():
        raise RepositoryError(f"{folder} has no {DIGESTS_FILE} to sign.", hint="`trimaran repository seal` adds one.")
    files: dict[str, Path | bytes] = {}
    for model in (*models_beside(repository, name, chosen), name):
        files |= dict(_files(repository / model, chosen, sign))
    release = read_config(folder / CONFIG_FILE).parameters.get(RELEASE, str(chosen))
    labels = {"org.opencontainers.image.title": name, "io.trimaran.release": release}
    image = write_layout(layout, files, tag=tag, labels=labels)
    pushed = push(image, reference) if to_registry else ""
    return Packaged(name=name, version=chosen, tag=tag, digest=image.digest, layout=layout, pushed=pushed)


def _files(model: Path, version: int, sign: Path | None) -> Iterator[tuple[str, Path | bytes]]:
    """The files of one version with a configuration that serves it."""
    folder = model / str(version)
    for path in (*folder.rglob("*"), *(model / WARMUP_FOLDER).glob("*")):
        if path.is_file() and path.parent.name != "__pycache__":
            yield f"{_FOLDER}/{model.name}/{path.relative_to(model).as_posix()}", path
    config = serving_only(read_config(folder / CONFIG_FILE), (version,))
    yield f"{_FOLDER}/{model.name}/{CONFIG_FILE}", pbtxt_from_config(config).encode()
    if sign is not None:
        yield f"{_FOLDER}/{model.name}/{version}/{SIGNATURE_FILE}", signature_of(folder, sign).encode()


def pull(source: str, repository: Path, *, trust_key: Path | None) -> tuple[Pulled, ...]:
    """Adds the versions of an image, from a registry or a layout on disk, to a repository. From an object store, such
    as s3://bucket/models, it takes the versions that are served there.

    A model that is new is served at once; the version of a known one when it is promoted. Raises IntegrityError for
    damage and, with a `trust_key`, for what is not signed with it. Nothing changes then.
    """
    repository = repository.absolute()
    repository.mkdir(parents=True, exist_ok=True)
    with temporary_sibling(repository / _FOLDER) as scratch:
        unpacked, digest = _fetched(source, scratch)
        models = models_in(unpacked)
        versions = [(model.folder, version) for model in models for version in model.served]
        if not versions:
            raise RepositoryError(f"{source} holds no model.", hint="`trimaran package` makes such images.")
        for model in models:
            _drop_unchecked(model)
        for folder, version in versions:
            _require_sound(folder, version, trust_key)
        with locked(repository):
            return tuple(_add(model, version, repository, digest) for model, version in versions)


def _fetched(source: str, scratch: Path) -> tuple[Path, str]:
    """The repository in the source as a folder in `scratch`, and the digest of its image; a bucket has none."""
    if is_remote(source):
        remote = RemoteRepository(source, scratch / "copied", wanted=everything)
        remote.copy()
        return remote.folder, ""
    layout = Path(source)
    image = read_layout(layout) if layout.is_dir() else pull_image(reference_of(source), scratch / "image")
    unpack(image, scratch / "unpacked")
    return scratch / "unpacked" / _FOLDER, image.digest


def _drop_unchecked(model: RepositoryModel) -> None:
    """Leaves what is served, its configuration and warm-up data: all that is checked, and all that is published."""
    kept = {CONFIG_FILE, WARMUP_FOLDER, *map(str, model.served)}
    for path in model.folder.iterdir():
        if path.name in kept:
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _require_sound(model: Path, version: int, trust_key: Path | None) -> None:
    folder = model / str(version)
    require_undamaged(folder, read_config(model / CONFIG_FILE))
    if trust_key is not None:
        require_signed(folder, trust_key)
        published = serving_only(read_config(folder / CONFIG_FILE), (version,))
        if pbtxt_from_config(published) != (model / CONFIG_FILE).read_text(encoding="utf-8"):
            raise RepositoryError(f"{model / CONFIG_FILE} does not follow from the signed configuration.")
    if problems := problems_of_version(model, version):
        raise RepositoryError("; ".join(map(str, problems)), problems=problems)


def _add(model: Path, version: int, repository: Path, digest: str) -> Pulled:
    target = repository / model.name
    folder = target / str(version)
    known = folder.exists()
    if known and _list_of(folder) != _list_of(model / str(version)):
        raise RepositoryError(
            f"{folder} exists, and its files are others than those of the image.",
            hint="Remove that version, or pull into another repository.",
        )
    if not target.exists():
        publish(model, target)
    elif not known:
        for warmup in (model / WARMUP_FOLDER).glob("*"):
            (target / WARMUP_FOLDER).mkdir(exist_ok=True)
            if not (target / WARMUP_FOLDER / warmup.name).exists():
                warmup.rename(target / WARMUP_FOLDER / warmup.name)
        publish(model / str(version), folder)
    return Pulled(name=model.name, version=version, digest=digest, repository=repository, known=known)


def _list_of(version: Path) -> bytes:
    path = version / DIGESTS_FILE
    return path.read_bytes() if path.is_file() else b""
