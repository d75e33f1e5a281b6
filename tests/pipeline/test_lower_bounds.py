from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.pipeline import bounds
from tests.tiny import PROFILE, tiny_artifact
from trimaran.core.artifact import Artifact
from trimaran.core.spec import Range
from trimaran.core.store import Store
from trimaran.pipeline.lower_bounds import LARGE_BYTES, Rival, reason_not_to_judge, reason_to_skip, waits_for_rivals
from trimaran.quantize.candidates import CANDIDATES, Candidate, MeasuresLowerBound, candidate

PROVEN = candidate("openvino-int8-mixed")
PLAN: Any = SimpleNamespace(profile=PROFILE, config=SimpleNamespace(objective="latency", busy_ok=True))


def with_bound(lower_bound: MeasuresLowerBound) -> Candidate:
    return replace(candidate("onnxruntime-int8-static"), lower_bound=lower_bound)


@pytest.fixture
def artifact(tmp_path: Path) -> Artifact:
    return tiny_artifact(tmp_path / "store")


def test_who_is_no_faster_at_best_is_not_searched_and_the_reason_has_the_numbers(artifact: Artifact) -> None:
    store = Store(artifact.directory.parent)
    said = reason_to_skip(PLAN, with_bound(bounds.slower), artifact, [Rival(PROVEN, artifact)], store=store)
    assert said == (
        "It was not searched: with every layer in INT8 it would take 1.08 times as long as openvino-int8-mixed, "
        "which keeps every gate (1.30 at 1x8, 0.90 at 1x4; processor time on one thread)."
    )
    again = reason_to_skip(PLAN, with_bound(bounds.faster), artifact, [Rival(PROVEN, artifact)], store=store)
    assert again == said, "a second run has the same contenders as the first"


@pytest.mark.parametrize("lower_bound", [bounds.faster, bounds.broken])
def test_who_may_win_or_cannot_be_told_is_searched(artifact: Artifact, lower_bound: MeasuresLowerBound) -> None:
    store = Store(artifact.directory.parent)
    assert reason_to_skip(PLAN, with_bound(lower_bound), artifact, [Rival(PROVEN, artifact)], store=store) == ""


def test_nothing_is_spared_without_a_searched_rival_or_for_whole_batches(artifact: Artifact) -> None:
    store, row = Store(artifact.directory.parent), with_bound(bounds.slower)
    assert reason_to_skip(PLAN, row, artifact, [], store=store) == ""
    assert reason_to_skip(PLAN, row, artifact, [Rival(candidate("openvino-int8-weights"), artifact)], store=store) == ""
    wide = PROFILE.model_copy(update={"batch": Range(minimum=1, typical=2, maximum=4)})
    plan: Any = SimpleNamespace(profile=wide, config=PLAN.config)
    assert reason_to_skip(plan, row, artifact, [Rival(PROVEN, artifact)], store=store) == ""
    assert reason_to_skip(PLAN, PROVEN, artifact, [Rival(PROVEN, artifact)], store=store) == "", "it has no bound"


def test_an_unsearched_candidate_waits_only_where_it_is_costly_and_nobody_asked_for_it() -> None:
    def waiting(size_bytes: int, *asked: str) -> set[str]:
        plan: Any = SimpleNamespace(config=SimpleNamespace(candidates=asked))
        graph: Any = SimpleNamespace(size_bytes=size_bytes)
        return {row.name for row in CANDIDATES.values() if row.default and waits_for_rivals(plan, row, graph)}

    searched = {"onnxruntime-int8-static"}
    others = {
        "onnxruntime-fp32", "onnxruntime-fused", "openvino-fp32", "onnxruntime-int8-dynamic", "openvino-int8-weights",
    }  # fmt: skip
    assert waiting(LARGE_BYTES - 1) == searched
    assert waiting(LARGE_BYTES) == searched | others
    assert waiting(LARGE_BYTES, "openvino-fp32", "openvino-int8-mixed") == searched


def test_a_float_candidate_that_is_not_judged_says_what_its_products_would_take(artifact: Artifact) -> None:
    row = replace(candidate("openvino-fp32"), lower_bound=bounds.much_slower)
    said = reason_to_skip(PLAN, row, artifact, [Rival(PROVEN, artifact)], store=Store(artifact.directory.parent))
    assert said.startswith("It was not judged: its matrix products alone, in float, would take 2.00 times as long as")
    near = replace(candidate("openvino-fp32"), lower_bound=bounds.slower)
    other = reason_to_skip(
        PLAN, near, artifact, [Rival(PROVEN, artifact)], store=Store(artifact.directory.parent / "other")
    )
    assert other == "", "another library's kernel may be that much faster"


def test_a_made_candidate_of_a_large_model_that_is_slower_is_not_judged(
    artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    row, store, rivals = candidate("openvino-int8-weights"), Store(artifact.directory.parent), [Rival(PROVEN, artifact)]
    assert reason_not_to_judge(PLAN, row, artifact, rivals, store=store) == "", "it takes as long as itself"
    monkeypatch.setattr("trimaran.pipeline.lower_bounds.made_time", bounds.much_slower)
    assert reason_not_to_judge(PLAN, row, artifact, rivals, store=Store(store.root / "other")) == (
        "It was not judged: it takes 2.00 times as long as openvino-int8-mixed, which keeps every gate "
        "(2.00 at 1x8, 2.00 at 1x4; processor time on one thread)."
    )
    assert reason_not_to_judge(PLAN, with_bound(bounds.much_slower), artifact, rivals, store=store) == ""
