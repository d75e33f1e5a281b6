"""Entities and spans of an INT8 candidate against the float graph's, as a caller gets them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.quantize.tensorrt.engines import CALIBRATION, QUIET, World
from trimaran.core.artifact import Artifact
from trimaran.core.backends import open_session
from trimaran.core.corpus import answer_context, encoder_of
from trimaran.core.tasks import gates_for, task
from trimaran.judging.final_answers import final_answers
from trimaran.judging.golden import golden_rows
from trimaran.judging.quality import assess, reference_answers
from trimaran.judging.wire_fidelity import wire_fidelity
from trimaran.pipeline.plan import texts_for
from trimaran.quantize.candidates import candidate
from trimaran.quantize.settings import MakerSettings
from trimaran.quantize.stage import to_precision
from trimaran.runtime.text import Text, infer_rows

pytestmark = pytest.mark.usefixtures("workers_here")
JUDGED: dict[str, tuple[Text, ...]] = {
    "token-classification": texts_for("token-classification", "judging", None)[:24],
    # Short enough for a tiny model to read whole.
    "question-answering": tuple(
        (" ".join(question.split()[:2]), " ".join(context.split()[:5]))
        for question, context in texts_for("question-answering", "judging", None)[:24]
    ),
}


def agreement(
    artifact: Artifact, texts: tuple[Text, ...], reference: dict[str, Any], candidate: dict[str, Any]
) -> float:
    """The headline metric of final answers made of two sides' outputs."""
    row, context = task(artifact.task), answer_context(artifact)
    sides = [row.judged(context, texts, side) for side in (reference, candidate)]
    return row.fidelity(*sides)[METRIC[artifact.task]]


METRIC = {"token-classification": "entity_agreement", "question-answering": "span_agreement"}


def int8(world: World, name: str) -> Artifact:
    settings = MakerSettings(calibration=CALIBRATION)
    row = candidate("openvino-int8-weights")
    return to_precision(world.exported("bert", name), row, settings, store=world.store, progress=QUIET)


def outputs(artifact: Artifact, texts: tuple[Text, ...]) -> dict[str, Any]:
    encoder = encoder_of(artifact)
    with open_session(artifact, threads=1) as session:
        return infer_rows(session.infer, encoder, encoder.rows(texts), policy="alone", maximum_batch=1)


@pytest.mark.parametrize("name", JUDGED)
def test_int8_is_judged_by_its_final_answers(world: World, name: str) -> None:
    graph, made, texts = world.exported("bert", name), int8(world, name), JUDGED[name]
    wanted = reference_answers(graph, texts, threads=1)
    quality = assess(made, wanted, texts, gates=gates_for(name, "balanced", {}), threads=1)
    found = agreement(made, texts, wanted, outputs(made, texts))
    assert quality.metrics[METRIC[name]] == found
    check = next(check for check in quality.checks if check.name == METRIC[name])
    assert check.observed == found
    assert check.verdict == ("not proven" if found >= check.limit else "broken"), "24 texts prove nothing"


@pytest.mark.parametrize("name", JUDGED)
def test_places_are_those_that_the_server_would_give(world: World, name: str) -> None:
    """The same by another way: asked one by one, answered by the code that a server runs, compared over the wire."""
    graph, made, texts = world.exported("bert", name), int8(world, name), JUDGED[name]
    rows = golden_rows(name, texts, {})[: len(texts)]
    sides = [final_answers(artifact, rows, threads=1) for artifact in (graph, made)]
    served = wire_fidelity(name, graph.signature.outputs[0].name, sides[0], sides[1])[METRIC[name]]
    found = agreement(made, texts, outputs(graph, texts), outputs(made, texts))
    assert found == pytest.approx(served, abs=1e-9)


def test_a_label_that_nobody_is_told_changes_nothing_and_a_moved_entity_does(world: World) -> None:
    name = "token-classification"
    graph, texts = world.exported("bert", name), JUDGED[name][:2]
    size = max(len(row.ids) for row in encoder_of(graph).rows(texts))
    logits = np.full((2, size, 5), -4.0, np.float32)
    logits[..., 0] = 4.0
    logits[0, 3:5, 1:3] = [[8.0, -4.0], [-4.0, 8.0]]
    wanted, moved, surer = ({"token_logits": logits.copy()} for _ in range(3))
    surer["token_logits"][1, :, 0] = 9.0
    assert agreement(graph, texts, wanted, surer) == 1.0
    moved["token_logits"][0, 5, 2] = 8.0
    assert agreement(graph, texts, wanted, moved) == 0.0


def test_a_span_one_token_longer_is_another_answer(world: World) -> None:
    name = "question-answering"
    graph, texts = world.exported("bert", name), JUDGED[name][:4]
    size = max(len(row.ids) for row in encoder_of(graph).rows(texts))
    start, end = np.full((4, size), -4.0, np.float32), np.full((4, size), -4.0, np.float32)
    begins = [row.sequence_ids.index(1) for row in encoder_of(graph).encodings(texts)]
    start[range(4), begins], end[range(4), begins] = 4.0, 4.0
    longer = end.copy()
    longer[0, begins[0] + 1] = 9.0
    wanted = {"start_logits": start, "end_logits": end}
    assert agreement(graph, texts, wanted, wanted) == 1.0
    assert agreement(graph, texts, wanted, {**wanted, "end_logits": longer}) == 0.75
