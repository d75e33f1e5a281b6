"""What is laid out by hand has a proof in the store, or a mark that everyone sees."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.model_repository.worlds import changed
from tests.tiny import tiny_artifact
from trimaran.core.artifact import Artifact, Check, Recipe
from trimaran.core.choices import Rows
from trimaran.core.errors import QualityError, UsageError
from trimaran.core.instructions import PRODUCTS_VARIABLE
from trimaran.core.metrics import METRICS_VERSION
from trimaran.core.model_config import PROOF
from trimaran.core.serving_json import read_serving
from trimaran.core.store import Store
from trimaran.judging.judgement import Quality
from trimaran.model_repository.check import problems
from trimaran.model_repository.versions import list_models, pin, unproven_served
from trimaran.pipeline.artifact_lookup import certified
from trimaran.pipeline.publish import publish_by_hand


def judged(
    store: Store, artifact: Artifact, overlap: float, *, rows: Rows = "padded", vnni: bool | None = None
) -> None:
    quality = Quality(
        artifact=artifact.digest, task="embedding", metrics={"neighbour_overlap": overlap}, rows=rows, changes={},
        neighbours=1, checks=(Check(name="neighbour_overlap", observed=overlap, limit=0.97, comparison=">="),), n=1,
        n_batched=1, texts="", peak_memory_bytes=0, metrics_version=METRICS_VERSION, vnni=vnni,
    )  # fmt: skip
    store.remember(Recipe(step="assess", parameters={"overlap": overlap}), Quality, lambda: quality)


def published(store: Store, artifact: Artifact, root: Path, *, rows: Rows | None = None, unproven: bool = False) -> int:
    made = publish_by_hand(artifact, store, repository=root / "r", name="m", rows=rows, threads=1, unproven=unproven)
    return made.version


def test_an_unjudged_or_rejected_candidate_is_not_published(tmp_path: Path) -> None:
    store, artifact = Store(tmp_path / "s"), tiny_artifact(tmp_path / "s")
    with pytest.raises(QualityError, match="never judged"):
        published(store, artifact, tmp_path)
    judged(store, artifact, 0.5)
    with pytest.raises(QualityError, match=r"judged and rejected\. Top-10 overlap 0\.5 is below its limit 0\.97\."):
        published(store, artifact, tmp_path)
    assert not (tmp_path / "r").exists()


def test_a_proven_one_is_published_with_the_rows_of_its_proof(tmp_path: Path) -> None:
    store, artifact = Store(tmp_path / "s"), tiny_artifact(tmp_path / "s")
    judged(store, artifact, 0.99, rows="equal-length")
    with pytest.raises(UsageError, match="proven with rows equal-length, wanted padded"):
        published(store, artifact, tmp_path, rows="padded")
    rows: tuple[Rows | None, ...] = ("alone", "equal-length", None)
    assert [published(store, artifact, tmp_path, rows=each) for each in rows] == [1, 2, 3]
    served = [read_serving(tmp_path / "r" / "m" / version).rows for version in "123"]
    assert served == ["alone", "equal-length", "equal-length"]
    assert unproven_served(tmp_path / "r") == ()


@pytest.mark.parametrize("rows", ["rounded", "packed"])
def test_each_row_alone_is_not_what_was_proven_where_the_proof_padded_lone_rows(tmp_path: Path, rows: Rows) -> None:
    store, artifact = Store(tmp_path / "s"), tiny_artifact(tmp_path / "s")
    judged(store, artifact, 0.99, rows=rows)
    with pytest.raises(UsageError, match=f"proven with rows {rows}, wanted alone") as raised:
        published(store, artifact, tmp_path, rows="alone")
    assert raised.value.hint == f"Use --rows {rows}."
    assert published(store, artifact, tmp_path) == 1
    assert read_serving(tmp_path / "r" / "m" / "1").rows == rows


def test_an_int8_proof_of_another_instruction_set_proves_nothing_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "s")
    artifact = changed(tiny_artifact(tmp_path / "s"), tmp_path / "s", precision="int8-dynamic")
    judged(store, artifact, 0.99, vnni=True)
    monkeypatch.setenv(PRODUCTS_VARIABLE, "without-vnni")
    with pytest.raises(QualityError, match="never judged against eager PyTorch on such a CPU"):
        published(store, artifact, tmp_path)
    assert certified(artifact, store).rows == "alone"
    monkeypatch.setenv(PRODUCTS_VARIABLE, "vnni")
    assert published(store, artifact, tmp_path, rows="padded") == 1
    assert certified(artifact, store).rows == "padded"


def test_an_unproven_one_is_marked_until_a_proven_one_is_served(tmp_path: Path) -> None:
    store, artifact = Store(tmp_path / "s"), tiny_artifact(tmp_path / "s")
    published(store, artifact, tmp_path, unproven=True)
    assert problems(tmp_path / "r") == ()
    assert unproven_served(tmp_path / "r") == ("m version 1",)
    assert f'key: "{PROOF}"' in (tmp_path / "r" / "m" / "config.pbtxt").read_text(encoding="utf-8")
    judged(store, artifact, 0.99)
    pin(tmp_path / "r", "m", published(store, artifact, tmp_path))
    assert unproven_served(tmp_path / "r") == ()
    assert {model.name: model.unproven for model in list_models(tmp_path / "r")} == {"m": (1,), "m_onnxruntime": (1,)}
