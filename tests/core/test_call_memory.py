"""Proofs of long texts fit into the memory, and say with how many rows they were made."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.model_repository.worlds import changed
from tests.tiny import tiny_artifact
from trimaran.core.artifact import Artifact
from trimaran.core.call_memory import (
    ATTENTION_BLOCKS,
    ModelSize,
    call_bytes,
    longest_call_bytes,
    memory_limit_bytes,
    proof_shapes,
)
from trimaran.core.errors import UsageError
from trimaran.core.spec import Range, ShapeProfile
from trimaran.model_repository.layout import lay_out
from trimaran.runtime.text import MOST_PAIRS, groups_of
from trimaran.serving.triton.undamaged import damaged

BASE = ModelSize(heads=12, hidden=768)
LONG = ShapeProfile(batch=Range(minimum=1, typical=1, maximum=32), sequence=Range(minimum=1, typical=128, maximum=8192))
GB = 1_000_000_000


def test_corners_have_as_many_rows_as_fit_and_the_proof_says_so() -> None:
    found = proof_shapes(BASE, LONG, 12 * GB)
    assert (1, 8192) in found.shapes and (32, 8192) not in found.shapes and (32, 128) in found.shapes
    assert found.reduced == "32x8192 with 1 rows, for 12.0 GB of memory"
    assert all(call_bytes(BASE, *shape) <= 12 * GB for shape in found.shapes)
    short = ShapeProfile()
    assert proof_shapes(BASE, short, 12 * GB) == (short.corners(), "")


def test_corners_of_a_large_model_have_few_rows_to_save_time() -> None:
    profile = ShapeProfile()
    found = proof_shapes(BASE, profile, 12 * GB, most_tokens=2048)
    assert all(rows * sequence <= max(2048, sequence) for rows, sequence in found.shapes)
    assert {sequence for _, sequence in found.shapes} == {sequence for _, sequence in profile.corners()}
    assert found.reduced.endswith("for the size of the model")


def test_a_text_that_does_not_fit_is_refused_with_the_length_that_does() -> None:
    with pytest.raises(
        UsageError, match=r"One text of 8,192 tokens takes about 10\.1 GB; 4\.0 GB may be used"
    ) as error:
        proof_shapes(BASE, LONG, 4 * GB)
    assert "maximum of 4,096" in error.value.hint


@pytest.mark.parametrize(("length", "rows"), [(512, 64), (2048, 4), (8192, 1)])
def test_a_call_has_few_long_texts(length: int, rows: int) -> None:
    groups = list(groups_of([length] * 64, "padded", 64))
    assert {len(group) for group in groups} == {rows} and rows * length**2 <= max(MOST_PAIRS, length**2)


def of_base_size(root: Path, profile: ShapeProfile, **details: int) -> Artifact:
    size = {"heads": BASE.heads, "hidden": BASE.hidden, "layers": 12, **details}
    return changed(tiny_artifact(root), root, profile=profile, details=size)


def test_blocks_of_attention_and_openvino_take_less_for_the_longest_text(tmp_path: Path) -> None:
    whole = of_base_size(tmp_path, LONG)
    in_some_layers = whole.model_copy(update={"details": {**whole.details, ATTENTION_BLOCKS: 11}})
    in_blocks = whole.model_copy(update={"details": {**whole.details, ATTENTION_BLOCKS: 12}})
    openvino, on_gpu = (whole.model_copy(update={"backend": name}) for name in ("openvino", "tensorrt"))
    found = [longest_call_bytes(served) / GB for served in (whole, in_some_layers, in_blocks, openvino, on_gpu)]
    assert found == pytest.approx([10.07, 10.07, 1.01, 3.62, 0], abs=0.01)


def test_a_version_whose_longest_text_can_never_fit_is_not_loaded_and_others_are(tmp_path: Path) -> None:
    """A text of a million tokens would need 144 TB for its scores."""
    endless = ShapeProfile(batch=LONG.batch, sequence=Range(minimum=1, typical=128, maximum=1_000_000))
    for name, profile in (("endless", endless), ("short", ShapeProfile())):
        served = of_base_size(tmp_path / name, profile)
        lay_out(served, repository=tmp_path / "r", name=name, rows="padded", threads=1)
    refused = damaged(tmp_path / "r", ["endless", "short"])
    assert list(refused) == ["endless"]
    assert "for one text of 1,000,000 tokens, and this machine has" in str(refused["endless"])
    assert "--sequence" in refused["endless"].hint


@pytest.mark.parametrize(("words", "limit"), [("2000000000\n", 2 * GB), ("max\n", None)])
def test_the_limit_of_a_container_counts_as_the_machines_memory(tmp_path: Path, words: str, limit: int | None) -> None:
    (tmp_path / "memory.max").write_text(words)
    machine = memory_limit_bytes(tmp_path / "absent")
    assert memory_limit_bytes(tmp_path / "memory.max") == (limit or machine)
