from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.tiny import tiny_artifact
from trimaran.core.artifact import MANIFEST, Check, Draft, Recipe, load_artifact
from trimaran.core.errors import IntegrityError, UsageError
from trimaran.core.spec import Frozen
from trimaran.core.store import Store, sweep, temporary_sibling


def test_an_equal_recipe_is_made_once(tmp_path: Path) -> None:
    first = tiny_artifact(tmp_path)
    before = first.entry_path.stat().st_mtime_ns
    assert tiny_artifact(tmp_path).entry_path.stat().st_mtime_ns == before


def test_force_makes_it_anew(tmp_path: Path) -> None:
    first = tiny_artifact(tmp_path)
    inode = first.entry_path.stat().st_ino
    made = []

    def again(folder: Path) -> Draft:
        made.append(folder)
        (folder / "model.onnx").write_bytes(b"new")
        return Draft.model_validate(first.model_dump(include=set(Draft.model_fields)))

    second = Store(tmp_path, force=True).produce(first.recipe, again)
    assert made and second.entry_path.stat().st_ino != inode
    assert second.entry_path.read_bytes() == b"new"


def test_recipe_digest_ignores_key_order_and_sees_every_value() -> None:
    one = Recipe(step="s", parameters={"a": 1, "b": 2})
    assert one.digest == Recipe(step="s", parameters={"b": 2, "a": 1}).digest
    assert one.digest != Recipe(step="s", parameters={"a": 1, "b": 3}).digest
    assert one.digest != Recipe(step="s", parameters={"a": 1, "b": 2}, tools={"onnx": "1"}).digest


def test_one_damaged_byte_is_noticed_before_use(tmp_path: Path) -> None:
    artifact = tiny_artifact(tmp_path)
    data = bytearray(artifact.entry_path.read_bytes())
    data[len(data) // 2] ^= 1
    artifact.entry_path.write_bytes(data)
    with pytest.raises(IntegrityError, match="differs from its manifest"):
        Store(tmp_path).open(str(artifact.directory))
    with pytest.raises(IntegrityError, match="--force"):
        tiny_artifact(tmp_path)


def test_a_missing_file_and_a_short_one_are_noticed(tmp_path: Path) -> None:
    artifact = tiny_artifact(tmp_path)
    artifact.entry_path.write_bytes(b"short")
    with pytest.raises(IntegrityError, match="has 5 bytes, its manifest says"):
        load_artifact(artifact.directory)
    artifact.entry_path.unlink()
    with pytest.raises(IntegrityError, match="is missing"):
        load_artifact(artifact.directory)


@pytest.mark.parametrize(("text", "words"), [("{", "not a readable manifest"), ('{"schema": 2}', "reads schema 1")])
def test_a_manifest_that_cannot_be_read_is_said_so(tmp_path: Path, text: str, words: str) -> None:
    artifact = tiny_artifact(tmp_path)
    (artifact.directory / MANIFEST).write_text(text)
    with pytest.raises(IntegrityError, match=words):
        load_artifact(artifact.directory)


def test_a_stage_that_raises_leaves_nothing(tmp_path: Path) -> None:
    def fail(folder: Path) -> Draft:
        (folder / "half").write_text("made")
        raise UsageError("no")

    with pytest.raises(UsageError):
        Store(tmp_path).produce(Recipe(step="fails"), fail)
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_run_left_is_swept(tmp_path: Path) -> None:
    code = (
        "import os, signal; from pathlib import Path; from trimaran.core.store import temporary_sibling\n"
        f"with temporary_sibling(Path({str(tmp_path)!r}) / 'x') as folder:\n"
        "    (folder / 'half').write_text('made'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code], check=False)
    assert len(list(tmp_path.iterdir())) == 1
    with temporary_sibling(tmp_path / "y") as mine:
        sweep(tmp_path)
        assert list(tmp_path.iterdir()) == [mine], "the folder of a live process stays"
    assert list(tmp_path.iterdir()) == []


def test_artifacts_are_found_by_folder_name_and_digest(tmp_path: Path) -> None:
    artifact = tiny_artifact(tmp_path)
    store = Store(tmp_path)
    for reference in (str(artifact.directory), artifact.directory.name, artifact.digest[:8]):
        assert store.open(reference).digest == artifact.digest
    with pytest.raises(UsageError, match=artifact.directory.name):
        store.open("nothing-like-it")


def test_a_fact_is_remembered_and_a_damaged_record_computed_again(tmp_path: Path) -> None:
    class Fact(Frozen):
        value: int

    store, recipe = Store(tmp_path), Recipe(step="fact")
    assert store.remember(recipe, Fact, lambda: Fact(value=1)) == (Fact(value=1), False)
    assert store.remember(recipe, Fact, lambda: Fact(value=2)) == (Fact(value=1), True)
    record = next((tmp_path / "records").iterdir())
    record.write_text("{")
    assert store.remember(recipe, Fact, lambda: Fact(value=3)) == (Fact(value=3), False)
    other = Recipe(step="other")
    assert store.remember(other, Fact, lambda: Fact(value=4), keep=lambda fact: fact.value > 4) == (
        Fact(value=4),
        False,
    )
    assert store.remember(other, Fact, lambda: Fact(value=5)) == (Fact(value=5), False), "what is not kept is not known"


def test_a_check_holds_or_not_by_its_comparison() -> None:
    assert Check(name="x", observed=1.0, limit=2.0).holds
    assert not Check(name="x", observed=1.0, limit=2.0, comparison=">=").holds
    assert Check(name="x", observed="clean", limit="clean", comparison="==").holds
    assert not Check(name="x", observed=float("nan"), limit=2.0).holds
    assert str(Check(name="Δ", observed=1e-6, limit=1e-5)) == "Δ 1e-06 ≤ 1e-05"
