"""Sends an artifact to another machine's store, once for each machine, and compares it with its manifest there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trimaran.core.artifact import MANIFEST, Artifact, load_artifact, verify_files
from trimaran.core.errors import IntegrityError
from trimaran.core.store import Store, default_home, locked, publish, temporary_sibling


@dataclass(frozen=True)
class Shipment:
    """An artifact that can be sent."""

    manifest: str
    files: Mapping[str, Any]  # name to what `fetch` turns into bytes on the other machine


def pack(artifact: Artifact, put: Callable[[bytes], Any]) -> Shipment:
    """Compares the files with the manifest and puts each where every machine can fetch it."""
    verify_files(artifact)
    return Shipment(
        manifest=artifact.to_json(),
        files={entry.name: put((artifact.directory / entry.name).read_bytes()) for entry in artifact.files},
    )


def unpack(shipment: Shipment, fetch: Callable[[Any], bytes]) -> Artifact:
    """The artifact in this machine's store; it is fetched only if the store does not have it.

    Of several workers on one machine, the first fetches and the others wait for it.
    """
    store = Store(default_home() / "store")
    sent = Artifact.model_validate_json(shipment.manifest)
    target = store.path_of(sent.recipe)
    with locked(store.root):
        try:
            present = store.find(sent.recipe)
        except IntegrityError:
            present = None
        # Two builds of one recipe may differ in their bytes; the one that was sent must run.
        if present is not None and present.files == sent.files:
            return present
        with temporary_sibling(target) as folder:
            for name, data in shipment.files.items():
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(fetch(data))
            (folder / MANIFEST).write_text(shipment.manifest, encoding="utf-8")
            load_artifact(folder)
            publish(folder, target)
    return load_artifact(target, verify=False)
