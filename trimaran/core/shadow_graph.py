"""The fp32 graph that a served version was made from: it travels in the version's folder, or is in the store."""

from __future__ import annotations

from pathlib import Path

from trimaran.core.artifact import Artifact, load_artifact
from trimaran.core.errors import UsageError
from trimaran.core.store import Store, link_or_copy

# A whole artifact in a version's folder, which the version's digest list covers.
SHADOW_FOLDER = "shadow"


def fp32_ancestor(artifact: Artifact, store: Store) -> Artifact:
    """The nearest fp32 ONNX graph that the artifact was made from, or the artifact itself. Raises UsageError."""
    for ancestor in store.lineage(artifact):
        if ancestor.format == "onnx" and ancestor.precision == "fp32":
            return ancestor
    raise UsageError(
        f"The fp32 graph of {artifact.name} is not in {store.root}.",
        hint="`trimaran deploy --shadow-graph` puts it into the version's folder.",
    )


def shadow_graph(version: Path, store: Store) -> Artifact:
    """`version` is a version folder. Raises UsageError where its fp32 graph is found nowhere."""
    folder = version / SHADOW_FOLDER
    return load_artifact(folder) if folder.is_dir() else fp32_ancestor(load_artifact(version, verify=False), store)


def place_shadow_graph(graph: Artifact, version: Path) -> None:
    """Puts the graph into a version's folder, as links to the store's files where the file system can."""
    for path in filter(Path.is_file, graph.directory.rglob("*")):
        link_or_copy(path, version / SHADOW_FOLDER / path.relative_to(graph.directory))
