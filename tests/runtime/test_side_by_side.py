"""Calls that OpenVINO runs side by side answer as they do one after the other, and one that fails holds up no other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.model_repository.worlds import ir_artifact
from trimaran.core.corpus import encoder_of
from trimaran.runtime.openvino_engine import Engine
from trimaran.runtime.text import infer_rows

TEXTS = ["the cat sat", "dog", "the good dog ran", "bad cat", "the", "the dog sat ran good bad"]


@pytest.mark.parametrize("streams", [1, 2, 4])
def test_rows_side_by_side_are_those_one_after_the_other(tmp_path: Path, streams: int) -> None:
    artifact = ir_artifact(tmp_path)
    encoder = encoder_of(artifact)
    engine = Engine(str(artifact.entry_path), threads=4, streams=streams)
    rows = encoder.rows(TEXTS)
    wanted, found = (
        infer_rows(engine.infer, encoder, rows, policy="alone", maximum_batch=1, infer_many=many)["embedding"]
        for many in (None, engine.infer_many)
    )
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6)
    assert not np.allclose(wanted[0], wanted[1])
    engine.close()


def test_a_call_that_fails_is_told_and_the_next_ones_are_answered(tmp_path: Path) -> None:
    artifact = ir_artifact(tmp_path)
    engine = Engine(str(artifact.entry_path), threads=2, streams=2)
    encoder = encoder_of(artifact)
    good = encoder.batch(encoder.rows(["the cat sat"]))
    unlike = {name: array[:, :2].copy() if name == "attention_mask" else array for name, array in good.items()}
    unknown = {**good, "nosuch": good["input_ids"]}
    for bad in (unlike, unknown):
        for calls in ([good, bad], [bad, good, good]):
            with pytest.raises(Exception, match=r"have one shape|nosuch"):
                engine.infer_many(calls)
            first, second, third = engine.infer_many([good, good, good])
            np.testing.assert_array_equal(first["embedding"], third["embedding"])
            np.testing.assert_array_equal(first["embedding"], second["embedding"])
