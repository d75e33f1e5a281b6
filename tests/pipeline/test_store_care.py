"""The store is listed with what it takes, and only what no deployed version needs is pruned."""

from __future__ import annotations

from pathlib import Path

from tests.commands import trimaran_here
from tests.tiny import tiny_artifact
from trimaran.core.store import Store
from trimaran.model_repository.layout import lay_out
from trimaran.pipeline.store_care import prune, stored_artifacts


def test_what_a_version_descends_from_is_kept(tmp_path: Path) -> None:
    store, repository = Store(tmp_path / "store"), tmp_path / "repository"
    deployed, other = tiny_artifact(store.root), tiny_artifact(store.root, task="text-classification")
    lay_out(deployed, repository=repository, name="tiny", rows="alone", threads=1)
    rows = {row.folder: row for row in stored_artifacts(store, [repository])}
    assert rows[deployed.directory].deployed and not rows[other.directory].deployed
    # The model's file is shared with the repository, so it takes no room of its own.
    assert rows[deployed.directory].own_bytes < rows[deployed.directory].size_bytes
    assert rows[other.directory].own_bytes == rows[other.directory].size_bytes

    assert prune(store, [repository], older_than_days=1, dry_run=False) == ()
    assert [row.folder for row in prune(store, [repository], older_than_days=0, dry_run=True)] == [other.directory]
    assert other.directory.is_dir()
    assert [row.folder for row in prune(store, [repository], older_than_days=0, dry_run=False)] == [other.directory]
    assert [artifact.digest for artifact in store.artifacts()] == [deployed.digest]


def test_the_command_says_what_it_would_free_and_frees_it(tmp_path: Path) -> None:
    home = tmp_path / "home"
    deployed, other = (tiny_artifact(home / "store", task=task) for task in ("embedding", "text-classification"))
    lay_out(deployed, repository=tmp_path / "model_repository", name="tiny", rows="alone", threads=1)
    listed = trimaran_here("store", "list", home=home).stdout.splitlines()
    assert {line.split()[2] for line in listed[:-1]} == {deployed.directory.name, other.directory.name}
    assert [line.endswith(", deployed") for line in listed if deployed.directory.name in line] == [True]
    for flag, words in (("--dry-run", "1 to remove"), (None, "1 removed"), (None, "0 removed")):
        told = trimaran_here("store", "prune", *filter(None, [flag]), home=home).stdout
        assert told.splitlines()[-1].endswith(words)
    assert not other.directory.exists() and deployed.directory.exists()
