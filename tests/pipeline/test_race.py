from __future__ import annotations

import time
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from tests.benchmarks.fakes import row
from tests.tiny import PROFILE, tiny_artifact
from trimaran.benchmarks.measure.baselines import attention_of, baselines, no_compiler
from trimaran.benchmarks.measure.runner import ContenderOutcome, Effort, Measured
from trimaran.benchmarks.report.choice import baseline_row
from trimaran.benchmarks.report.figures import grid
from trimaran.core.devices import CPU
from trimaran.core.errors import ToolError, UsageError
from trimaran.core.progress import SilentProgress
from trimaran.core.store import Store
from trimaran.core.tasks import gates_for
from trimaran.pipeline import race
from trimaran.pipeline.outcomes import CandidateOutcome, Failed, judged
from trimaran.pipeline.plan import DeployRun
from trimaran.pipeline.race import race_entries, stopped_notes, too_few_texts_notes
from trimaran.quantize.candidates import candidate

Memory = namedtuple("Memory", "available")


@pytest.fixture
def outcomes(tmp_path: Path) -> list[CandidateOutcome]:
    artifact = tiny_artifact(tmp_path)
    true, wrong = row("true").quality, row("wrong", neighbour_overlap=0.1).quality
    assert true is not None and wrong is not None
    return [
        judged(candidate("openvino-int8-static"), artifact, wrong),
        judged(candidate("openvino-fp32"), artifact, true),
        Failed(candidate("onnx-bf16"), ToolError("It could not be made.")),
    ]


def test_who_broke_a_gate_is_measured_briefly_and_who_was_not_made_not_at_all(
    tmp_path: Path, outcomes: list[CandidateOutcome]
) -> None:
    found = race_entries(tiny_artifact(tmp_path), outcomes, baselines(["eager-bf16"]))
    assert [(entry.name, entry.brief) for entry in found] == [
        ("eager", False),
        ("eager-bf16", False),
        ("openvino-int8-static", True),
        ("openvino-fp32", False),
    ]


def test_when_memory_is_short_those_that_nothing_is_decided_on_stay_out(
    tmp_path: Path, outcomes: list[CandidateOutcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: Memory(available=200_000_000))
    found = race_entries(tiny_artifact(tmp_path), outcomes, ())
    assert [entry.name for entry in found] == ["eager", "openvino-fp32"]


def test_the_report_says_who_was_stopped_early_and_why() -> None:
    timings = [
        ContenderOutcome(candidate=name, failure=None, peak_memory_bytes=1, load_s=0.1, stopped=why)
        for name, why in {"a": "", "b": "after 2 rounds, at least 1.50 times slower than a (at 1x16)"}.items()
    ]
    (said,) = stopped_notes(Measured(measurements=(), outcomes=tuple(timings)))
    assert said == (
        "Stopped early, because they could not win any more: "
        "b after 2 rounds, at least 1.50 times slower than a (at 1x16)."
    )
    assert stopped_notes(Measured(measurements=(), outcomes=tuple(timings[:1]))) == ()


def test_only_who_keeps_its_gates_competes_and_can_be_beaten(tmp_path: Path, outcomes: list[CandidateOutcome]) -> None:
    found = race_entries(tiny_artifact(tmp_path), outcomes, baselines(["eager-bf16"]))
    assert [entry.name for entry in found if entry.competes] == ["openvino-fp32"]


def test_without_a_compiler_the_baseline_says_why_it_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    (compiled,) = baselines(["eager-compiled"])
    assert not compiled.judged, "one graph a shape cannot be asked hundreds of lengths"
    assert no_compiler() is not None
    artifact = tiny_artifact(tmp_path)
    assert [entry.name for entry in race_entries(artifact, [], (compiled,))] == ["eager"]
    said = baseline_row(artifact, compiled, None)
    assert said.verdict == "failed"
    assert said.reason == (
        "It cannot run here: torch.compile wants a C++ compiler, and no-such-compiler is not on the PATH."
    )
    assert said.runs_as == f"torch.compile, fp32, one graph a shape, attention {attention_of(artifact)}"


def test_an_unknown_baseline_names_its_neighbour() -> None:
    with pytest.raises(UsageError, match="eager-bf16"):
        baselines(["eager-fp16"])


def test_the_report_says_when_the_judging_texts_are_too_few_for_the_tail() -> None:
    gates = gates_for("text-classification", "strict", {})
    (said,) = too_few_texts_notes(gates, 100)
    assert said.startswith("There are few judging texts: 1 % tail of |Δp| is the largest change of 100 texts")
    assert too_few_texts_notes(gates, 400) == ()
    assert too_few_texts_notes(gates_for("question-answering", "strict", {}), 100) == ()


def test_what_a_busy_machine_gave_is_not_remembered_and_what_was_asked_for_though_busy_stays_apart(
    tmp_path: Path, outcomes: list[CandidateOutcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    efforts: list[Effort] = []

    def measured(*_: Any, effort: Effort, **__: Any) -> Measured:
        efforts.append(effort)
        return Measured(measurements=(), outcomes=(), others_share=0.7, busy=effort.delay_limit is not None)

    monkeypatch.setattr(race, "measure", measured)
    monkeypatch.setattr(
        race, "wait_until_quiet", lambda cores, *, until_s: time.monotonic() < until_s and len(efforts) < 4
    )
    store, reference = Store(tmp_path / "store"), tiny_artifact(tmp_path)

    def raced(**flags: bool) -> Measured:
        config = SimpleNamespace(threads=1, objective="latency", **{"busy_ok": False, "wait_quiet": False, **flags})
        plan: Any = SimpleNamespace(config=config, profile=PROFILE, shapes=grid(PROFILE), device=CPU, eager_options={})
        return race.measure_candidates(DeployRun(plan, store, SilentProgress()), reference, outcomes)

    assert raced().busy and raced().busy and len(efforts) == 2, "it is measured again each time"
    assert raced(wait_quiet=True).busy and len(efforts) == 4, "it is tried again while there is a quiet moment"
    assert not raced(busy_ok=True).busy and not raced(busy_ok=True).busy and len(efforts) == 5, "it is remembered"
    assert raced().busy and len(efforts) == 6, "but not for those that did not ask for it"
