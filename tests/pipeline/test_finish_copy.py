"""A copy to finish in: what is copied, when it is copied again, and what stays."""

from __future__ import annotations

from pathlib import Path

from tests.tiny import tiny_artifact
from trimaran.core.config_pbtxt import CONFIG_FILE, read_config
from trimaran.model_repository.layout import lay_out
from trimaran.pipeline.finish_copy import copy_repository


def test_what_was_finished_in_the_copy_stays_until_its_source_changes(tmp_path: Path) -> None:
    artifact = tiny_artifact(tmp_path / "s")
    source, copy = tmp_path / "models", tmp_path / "plans" / "models"
    lay_out(artifact, repository=source, name="m", rows="alone", threads=1)
    copy_repository(source, copy)
    assert read_config(copy / "m" / CONFIG_FILE) == read_config(source / "m" / CONFIG_FILE)
    (copy / "m" / "2").mkdir()
    copy_repository(source, copy)
    assert (copy / "m" / "2").is_dir(), "the same source: nothing was copied"
    lay_out(artifact, repository=source, name="m", rows="alone", threads=1)
    copy_repository(source, copy)
    assert (copy / "m" / "2" / CONFIG_FILE).is_file(), "a new version of the source takes the place"
