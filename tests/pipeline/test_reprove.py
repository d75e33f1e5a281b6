"""An INT8 model that was proven with other instructions is refused until `trimaran finish` has proven it here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.export.exported import QUIET
from tests.model_repository.worlds import changed
from tests.tiny import tiny_artifact
from trimaran.core.artifact import Artifact
from trimaran.core.digests import damages_of
from trimaran.core.errors import IntegrityError, QualityError, UsageError
from trimaran.core.instructions import PRODUCTS_VARIABLE, instruction_limit, products_by
from trimaran.core.serving_json import read_serving
from trimaran.core.store import Store
from trimaran.core.tasks import Gate
from trimaran.judging.final_answers import final_answers
from trimaran.judging.golden import Golden, make_golden
from trimaran.model_repository.layout import lay_out
from trimaran.pipeline.artifact_lookup import find_artifact
from trimaran.pipeline.local.opening import find_source
from trimaran.pipeline.reprove import Reproof, reprove_repository
from trimaran.serving.triton.undamaged import damaged

ROWS = [{"TEXT": text} for text in ("the cat", "a dog ran", "good", "bad dog sat", "the the")]
LIMIT = Gate("mean_cosine_distance", "<=", 1e-6)


def int8_artifact(root: Path) -> Artifact:
    return changed(tiny_artifact(root), root, precision="int8-dynamic")


def bundle(artifact: Artifact, *, sign: float = 1.0) -> Golden:
    """Eager's answers are the engine's own; with another sign the engine would be far from them."""
    answers = final_answers(artifact, ROWS, threads=1)
    golden = make_golden(
        task="embedding", model="m", reference="", numbers="embedding", rows=ROWS, wanted=answers, proven=answers,
        gates=(LIMIT,),
    )  # fmt: skip
    tensors = [item.model_copy(update={"data": tuple(sign * float(x) for x in item.data)}) for item in golden.answers]
    return golden.model_copy(update={"answers": tuple(tensors)})


def proven_with_vnni(root: Path, monkeypatch: pytest.MonkeyPatch, *, sign: float = 1.0) -> Path:
    """A repository that was made on a CPU with VNNI; from then on this is one without."""
    artifact = int8_artifact(root / "s")
    monkeypatch.setenv(PRODUCTS_VARIABLE, "vnni")
    lay_out(artifact, repository=root / "r", name="m", rows="padded", threads=1, golden=bundle(artifact, sign=sign))
    monkeypatch.setenv(PRODUCTS_VARIABLE, "without-vnni")
    return root / "r"


def finished(repository: Path, name: str | None = None) -> tuple[Reproof, ...]:
    return reprove_repository(repository, name, store=Store(repository.parent / "s"), progress=QUIET)


def test_another_instruction_set_is_refused_until_finish_proves_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = proven_with_vnni(tmp_path, monkeypatch)
    error = damaged(repository, ["m"])["m"]
    assert "proven on a CPU with VNNI, and this is a CPU without VNNI" in str(error)
    assert f"trimaran finish {repository} m" in error.hint
    with pytest.raises(IntegrityError, match="without VNNI"):
        find_artifact("m", store=Store(tmp_path / "s"), repository=repository)
    for reference in ("m", repository / "m", repository / "m" / "1"):
        with pytest.raises(IntegrityError, match="without VNNI"):
            find_source(reference, repository=repository, store=tmp_path / "s")
    (proof,) = finished(repository)
    assert (proof.name, proof.version, proof.products_by) == ("m", 1, "without-vnni")
    assert proof.moved == pytest.approx(0.0, abs=1e-12)
    assert [check.name for check in proof.checks] == ["mean_cosine_distance"]
    for model in ("m", "m_onnxruntime"):
        assert read_serving(repository / model / "1").proven_on == ("vnni", "without-vnni")
        assert not list(damages_of(repository / model / "1"))
    assert damaged(repository, ["m", "m_onnxruntime"]) == {} and finished(repository) == ()
    assert find_artifact("m", store=Store(tmp_path / "s"), repository=repository).rows == "padded"
    assert find_source("m", repository=repository, store=tmp_path / "s").rows == "padded"


def test_a_model_that_breaks_its_limits_here_stays_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = proven_with_vnni(tmp_path, monkeypatch, sign=-1.0)
    with pytest.raises(
        QualityError, match=r"is not proven here: mean 1−cos 2 is above its limit 1e-6 \(over 5 requests\)"
    ):
        finished(repository, "m")
    assert read_serving(repository / "m" / "1").proven_on == ("vnni",)
    assert list(damaged(repository, ["m"])) == ["m"]


def test_float_models_and_old_versions_need_no_proof_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PRODUCTS_VARIABLE, "vnni")
    lay_out(tiny_artifact(tmp_path / "s"), repository=tmp_path / "r", name="m", rows="padded", threads=1)
    monkeypatch.setenv(PRODUCTS_VARIABLE, "without-vnni")
    assert read_serving(tmp_path / "r" / "m" / "1").proven_on == ()
    assert damaged(tmp_path / "r", ["m"]) == {} and finished(tmp_path / "r") == ()
    with pytest.raises(UsageError, match="no model 'other' that is served"):
        finished(tmp_path / "r", "other")


def test_a_limit_of_onednn_takes_vnni_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PRODUCTS_VARIABLE, raising=False)
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    monkeypatch.setattr("trimaran.core.instructions.cpu_flags", lambda: frozenset({"avx2", "avx512_vnni"}))
    assert [products_by({"ONEDNN_MAX_CPU_ISA": isa}) for isa in ("AVX2", "AVX512_CORE_VNNI")] == [
        "without-vnni",
        "vnni",
    ]
    assert products_by({}) == "vnni" and instruction_limit() == {}
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "avx2")
    assert products_by({}) == "without-vnni", "a limit of this process counts too"
    assert products_by({"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI"}) == "vnni", "the version's own comes first"
    assert instruction_limit() == {"ONEDNN_MAX_CPU_ISA": "avx2"}
