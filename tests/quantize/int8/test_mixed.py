"""Searched INT8 in both CPU engines: run on whole numbers, near to float, told layer by layer, the same each time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.quantize.tensorrt.engines import TASKS, World
from trimaran.core.artifact import Artifact, sha256_of
from trimaran.core.backends import open_session
from trimaran.core.corpus import digest_of_texts, encoder_of, kinds_of, shipped_texts
from trimaran.core.distances import cosine_distances
from trimaran.core.errors import ValidationError
from trimaran.core.progress import SilentProgress
from trimaran.judging.sensitivity import Sensitivity
from trimaran.quantize.candidates import candidate
from trimaran.quantize.int8.held_out import split_texts
from trimaran.quantize.int8.integer_receipt import NAME, openvino_receipt, session_receipt
from trimaran.quantize.int8.mixed import onnxruntime_static, openvino_mixed
from trimaran.quantize.int8.search import FEWEST_OF_KIND
from trimaran.quantize.optimize import optimize
from trimaran.quantize.settings import MadeCandidate, MakerSettings
from trimaran.quantize.stage import to_precision
from trimaran.runtime.text import batch_of, width_of

QUIET = SilentProgress()
Maker = Callable[[Artifact, Path, MakerSettings], MadeCandidate]
TEXTS = shipped_texts("calibration")[:40]
LOOSE = MakerSettings(calibration=TEXTS, gates=(("mean_cosine_distance", "<=", 0.05),), budget_s=3600)
IMPOSSIBLE = MakerSettings(calibration=TEXTS, gates=(("mean_cosine_distance", "<=", 0.0),), budget_s=3600)


def made(world: World, family: str, name: str, settings: MakerSettings) -> Artifact:
    parent = world.exported(family)
    row = candidate(name)
    if row.fused:
        parent = optimize(parent, store=world.store, progress=QUIET)
    gates = tuple(gate for gate in settings.gates if TASKS[family] == "embedding")
    return to_precision(parent, row, settings.model_copy(update={"gates": gates}), store=world.store, progress=QUIET)


def answers(artifact: Artifact) -> np.ndarray:
    encoder = encoder_of(artifact)
    with open_session(artifact, threads=1) as session:
        found = [session.infer(encoder.batch([row])) for row in encoder.rows(shipped_texts("judging")[:12])]
    return np.concatenate([next(iter(outputs.values())) for outputs in found])


@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("bert", "openvino-int8-mixed"),
        ("albert", "openvino-int8-mixed"),
        ("bert", "onnxruntime-int8-static"),
        ("roberta", "onnxruntime-int8-static"),
        ("distilbert", "onnxruntime-int8-static"),
    ],
)
def test_every_layer_runs_on_whole_numbers_and_answers_nearly_like_fp32(world: World, family: str, name: str) -> None:
    artifact = made(world, family, name, LOOSE)
    receipt = next(check for check in artifact.checks if check.name == NAME)
    products = 6 if name.startswith("openvino") else 4
    assert receipt.observed >= 2 * products and receipt.holds
    assert artifact.details["kept_in_float"] == []
    wanted, found = answers(world.exported(family)), answers(artifact)
    assert cosine_distances(wanted, found).max() < 5e-3


def test_a_gate_that_nothing_keeps_leaves_the_layers_in_float_and_says_so(world: World) -> None:
    artifact = made(world, "bert", "onnxruntime-int8-static", IMPOSSIBLE)
    found = Sensitivity.model_validate(artifact.details["sensitivity"])
    assert found.stopped == "nothing left"
    assert any(layer.kept == "float" for layer in found.layers)
    assert len(found.steps) > 1 and not found.gates[0].holds


@pytest.mark.parametrize(
    ("given", "calibrate", "held"), [(16, 8, 8), (320, 160, 160), (401, 201, 200), (5000, 280, 280)]
)
def test_both_parts_are_drawn_from_the_whole_file(given: int, calibrate: int, held: int) -> None:
    texts = [f"text {index}" for index in range(given)]
    calibrating, held_out = split_texts(texts)
    assert (len(calibrating), len(held_out)) == (calibrate, held)
    assert not set(calibrating) & set(held_out)
    for part in (calibrating, held_out):
        positions = [texts.index(text) for text in part]
        assert positions == sorted(positions)
        assert max(positions) >= 0.8 * given
        assert sum(position < given / 2 for position in positions) == pytest.approx(len(part) / 2, abs=2)


def test_every_shipped_kind_calibrates_and_is_held_out() -> None:
    halves = [Counter(kinds_of(part)) for part in split_texts(shipped_texts("calibration"))]
    assert halves[0].keys() == halves[1].keys() == set(kinds_of(shipped_texts("calibration")))
    assert max(abs(halves[0][kind] - halves[1][kind]) for kind in halves[0]) <= 1
    assert min(halves[1].values()) >= FEWEST_OF_KIND


def test_manifest_names_the_texts_and_no_text_both_calibrates_and_is_held_out(world: World) -> None:
    calibrating, held_out = split_texts(TEXTS)
    assert not set(calibrating) & set(held_out)
    details = made(world, "bert", "openvino-int8-mixed", LOOSE).details
    assert details["calibration"] == {"texts": len(calibrating), "digest": digest_of_texts(calibrating)}
    sensitivity = Sensitivity.model_validate(details["sensitivity"])
    assert sensitivity.texts_digest == digest_of_texts(held_out)
    # Two layers of four, and two products of queries and keys.
    assert len(sensitivity.layers) == 2 * 4 + 2
    assert all(layer.cost is not None for layer in sensitivity.layers)


@pytest.mark.parametrize(
    ("name", "maker", "files"),
    [
        ("onnxruntime-int8-static", onnxruntime_static, ("model.onnx",)),
        pytest.param("openvino-int8-mixed", openvino_mixed, ("model.bin", "model.xml"), marks=pytest.mark.slow),
    ],
)
def test_the_same_recipe_gives_the_same_graph(
    world: World, tmp_path: Path, name: str, maker: Maker, files: tuple[str, ...]
) -> None:
    artifact = made(world, "bert", name, LOOSE)
    parent = next(found for found in world.store.lineage(artifact) if found.digest == artifact.recipe.parents[0])
    maker(parent, tmp_path, LOOSE)
    for file in files:
        assert sha256_of(tmp_path / file) == sha256_of(artifact.directory / file)


def test_alone_and_in_a_batch_of_equal_length_are_the_same(world: World) -> None:
    artifact = made(world, "bert", "openvino-int8-mixed", LOOSE)
    encoder = encoder_of(artifact)
    row = encoder.rows(TEXTS[:1])[0]
    with open_session(artifact, threads=1) as session:
        alone = session.infer(encoder.batch([row]))["embedding"]
        among = session.infer(encoder.batch([row, row, row]))["embedding"]
    np.testing.assert_allclose(among[2], alone[0], atol=1e-5)


def test_packed_texts_of_all_lengths_are_answered_as_alone_to_the_last_bit(world: World) -> None:
    artifact = made(world, "bert", "openvino-int8-mixed", LOOSE)
    assert artifact.details["packed"]
    encoder = encoder_of(artifact)
    rows = encoder.rows([TEXTS[0], " ".join(TEXTS[:6]), "x", TEXTS[3], " ".join(TEXTS[4:7])])
    assert len({width_of(len(row.ids), "packed") for row in rows}) > 1
    width = max(width_of(len(row.ids), "packed") for row in rows)
    with open_session(artifact, threads=1) as session:
        among = session.infer(encoder.batch(rows, length=width))["embedding"]
        alone = [session.infer(batch_of(encoder, [row], "packed"))["embedding"][0] for row in rows]
    np.testing.assert_array_equal(among, alone)


def test_a_shortfall_of_integer_products_fails(world: World) -> None:
    openvino = made(world, "bert", "openvino-int8-mixed", LOOSE)
    session = made(world, "bert", "onnxruntime-int8-static", LOOSE)
    for receipt, artifact, found in ((openvino_receipt, openvino, 12), (session_receipt, session, 8)):
        assert receipt(artifact.entry_path, found, threads=1).observed == found
        with pytest.raises(ValidationError, match=f"{found} of {found + 1} matrix products run on whole numbers"):
            receipt(artifact.entry_path, found + 1, threads=1)
