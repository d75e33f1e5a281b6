"""Which plan `trimaran finish` publishes."""

from __future__ import annotations

from collections.abc import Mapping

from tests.benchmarks.fakes import measurement, row
from trimaran.core.samples import Shape
from trimaran.judging.finished import FinishedCandidate
from trimaran.pipeline.finish_choice import choose_plan

SHAPES = (Shape(batch=1, sequence=128), Shape(batch=1, sequence=16))


def plan(name: str, *, loss: float = 1e-9, verdict: str = "passed") -> FinishedCandidate:
    quality = row(name, mean_cosine_distance=loss).quality
    return FinishedCandidate.model_validate(
        {"name": name, "precision": "fp16", "verdict": verdict, "reason": "It keeps every gate.", "quality": quality}
    )


def chosen(plans: list[FinishedCandidate], times_ms: Mapping[str, float]) -> tuple[str, dict[str, str]]:
    measured = [measurement(name, shape, ms) for name, ms in times_ms.items() for shape in SHAPES]
    name, rows = choose_plan(plans, measured, SHAPES)
    assert [item.name for item in rows if item.verdict == "chosen"] == [name] * bool(name)
    return name, {item.name: item.reason for item in rows}


def test_the_fastest_plan_is_published_and_the_other_says_by_how_much_it_lost() -> None:
    name, reasons = chosen([plan("fp16"), plan("int8", loss=5e-4)], {"fp16": 1.0, "int8": 0.6})
    assert name == "int8" and reasons["int8"] == "The fastest that keeps every gate."
    assert reasons["fp16"].startswith("It keeps every gate and takes 1.6")
    assert reasons["fp16"].endswith("times as long as int8.")


def test_int8_that_is_no_faster_than_fp16_loses_with_the_number() -> None:
    name, reasons = chosen([plan("fp16"), plan("int8", loss=5e-4)], {"fp16": 1.0, "int8": 0.999})
    assert name == "fp16"
    assert reasons["fp16"] == "It keeps every gate and is truer than int8, from which speed could not tell it apart."
    assert "times as long as fp16, which is no clear difference." in reasons["int8"]


def test_a_faster_plan_that_breaks_a_gate_or_was_not_timed_is_not_published() -> None:
    plans = [plan("wrong", verdict="rejected"), plan("silent"), plan("fp16")]
    name, reasons = chosen(plans, {"wrong": 0.1, "fp16": 1.0})
    assert name == "fp16" and reasons["silent"] == "It could not be timed."


def test_without_a_timed_plan_nothing_is_published() -> None:
    name, reasons = chosen([plan("fp16")], {})
    assert name == "" and reasons == {"fp16": "It could not be timed."}
