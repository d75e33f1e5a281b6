"""An artifact on its way to another machine: known by digest, landed once there, compared with its manifest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trimaran.core.artifact import MANIFEST, Artifact, load_artifact, verify_files
from trimaran.core.errors import IntegrityError
from trimaran.core.store import Store, default_home, locked, publish, temporary_sibling


@dataclass(frozen=True)
class Shipment:
    """The manifest, and for each file what `fetch` turns into its bytes where it lands."""

    manifest: str
    files: Mapping[str, Any]


def pack(artifact: Artifact, put: Callable[[bytes], Any]) -> Shipment:
    """Puts each file where every machine can fetch it from; files are compared with the manifest first."""
    verify_files(artifact)
    return Shipment(
        manifest=artifact.to_json(),
        files={entry.name: put((artifact.directory / entry.name).read_bytes()) for entry in artifact.files},
    )


def landed(shipment: Shipment, fetch: Callable[[Any], bytes]) -> Artifact:
    """The artifact in this machine's store; fetched only where the store has none of that digest.

    Of several workers on one machine the first fetches and the others wait for it.
    """
    store = Store(default_home() / "store")
    wanted = Artifact.model_validate_json(shipment.manifest)
    target = store.path_of(wanted.recipe)
    with locked(store.root):
        try:
            found = store.find(wanted.recipe)
        except IntegrityError:
            found = None
        # Two builds of one recipe may differ in their bytes; the one that was asked for is the one to run.
        if found is not None and found.files == wanted.files:
            return found
        with temporary_sibling(target) as folder:
            for name, sent in shipment.files.items():
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(fetch(sent))
            (folder / MANIFEST).write_text(shipment.manifest, encoding="utf-8")
            load_artifact(folder)
            publish(folder, target)
    return load_artifact(target, verify=False)
