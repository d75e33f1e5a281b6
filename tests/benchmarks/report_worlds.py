"""A report with everything in it: baselines, every scenario, a cut one, a search by layers, the harness's figures."""

from __future__ import annotations

from tests.benchmarks.fakes import EAGER, MILLISECOND, report, row, usual_report
from tests.benchmarks.scenario_worlds import cut_result, rounds, scenario_results
from trimaran.benchmarks.measure.ceiling import BareProduct, Ceiling
from trimaran.benchmarks.measure.harness import HarnessCheck
from trimaran.benchmarks.measure.products import MatrixProduct
from trimaran.benchmarks.report.figures import shapes_of
from trimaran.benchmarks.report.report import CandidateRow, Report
from trimaran.benchmarks.scenarios.results import SuiteRun
from trimaran.core.samples import Round, Shape
from trimaran.judging.judgement import KindQuality
from trimaran.judging.sensitivity import LayerCost, SearchStep, Sensitivity

SENSITIVITY = Sensitivity(
    metric="mean_cosine_distance",
    texts=100,
    texts_digest="e" * 64,
    layers=(
        *(
            LayerCost(
                name=f"layer.{index}.{part}",
                cost=cost,
                low=cost * 0.8 - 1e-5,
                high=cost * 1.2 + 1e-5,
                kept="float" if cost > 3e-4 else "int8",
            )
            for index in range(3)
            for part, cost in (("attention", 4e-5 * index - 1e-5), ("ffn.in", 1e-4), ("ffn.out", 4e-4 / (index + 1)))
        ),
        LayerCost(name="pooler", cost=None, low=None, high=None, kept="int8"),
    ),
    steps=tuple(SearchStep(kept=n, value=v, high=v * 1.1, holds=v < 1.1e-3) for n, v in enumerate((3e-3, 2e-3, 1e-3))),
    gates=(),
    stopped="gates keep",
    seconds=84.2,
    budget_s=180.0,
)


def ceiling_at(shape: Shape) -> Ceiling:
    """Two products: integers help one of them only; 4 ms in float, 2 ms at best."""
    linear = MatrixProduct(count=2, batch=1, rows=100, inner=100, columns=100, weights=True)
    attention = MatrixProduct(count=1, batch=10, rows=10, inner=10, columns=10, weights=False)
    return Ceiling(
        shape=shape,
        threads=2,
        bare=(
            BareProduct(product=linear, arithmetic="float32", library="torch", seconds=0.003),
            BareProduct(product=linear, arithmetic="int8", library="onnxruntime", seconds=0.001),
            BareProduct(product=attention, arithmetic="float32", library="torch", seconds=0.001),
        ),
    )


def whole_report() -> Report:
    found = usual_report()
    searched = [
        one.model_copy(update={"sensitivity": SENSITIVITY}) if one.name == "quick" else one for one in found.candidates
    ]
    baseline = EAGER.model_copy(
        update={
            "name": "eager-bf16",
            "precision": "bf16",
            "verdict": "baseline",
            "runs_as": "eager bf16, attention sdpa",
        }
    )
    as_baseline = [
        one.model_copy(update={"candidate": "eager-bf16"}) for one in found.measurements if one.candidate == "slow"
    ]
    return found.model_copy(
        update={
            "candidates": tuple(searched),
            "baselines": (baseline,),
            "measurements": (*found.measurements, *as_baseline),
            "scenarios": (*scenario_results("eager", speed=0.4), *scenario_results("quick"), cut_result()),
            "ceilings": tuple(ceiling_at(shape) for shape in shapes_of(found.measurements)),
            "suite": SuiteRun(name="standard", digest="f" * 64, scenarios=("single-stream",)),
            "harness": HarnessCheck(
                null=(Round(samples_ns=(800, 900, 1000)),),
                bare=tuple(Round(samples_ns=(MILLISECOND,)) for _ in range(3)),
                timed=rounds(1.005),
            ),
        }
    )


def _with_kinds(found: CandidateRow) -> CandidateRow:
    """A candidate that statistics judged, by kinds of text."""
    assert found.quality is not None
    values = {check.name: 1.2345e-4 for check in found.quality.checks}
    kinds = tuple(KindQuality(kind=kind, n=60, metrics=values) for kind in ("caption", "japanese and korean"))
    return found.model_copy(update={"quality": found.quality.model_copy(update={"kinds": kinds, "alpha": 0.05})})


def large_report() -> Report:
    """Twelve candidates, speed-ups beyond a thousand, gigabytes of memory and latencies of minutes."""
    names = [f"onnxruntime-int8-candidate-{index}" for index in range(12)]
    rows = [_with_kinds(row(name)) for name in names]
    rows = [one.model_copy(update={"size_bytes": 12_345_678_901, "peak_memory_bytes": 23_456_789_012}) for one in rows]
    found = report(rows, {name: 100.0 * (index + 1) for index, name in enumerate(names)})
    slow = tuple(
        one.model_copy(
            update={
                "rounds": tuple(
                    Round(samples_ns=tuple(sample * 5000 for sample in turn.samples_ns)) for turn in one.rounds
                )
            }
        )
        for one in found.measurements
    )
    return found.model_copy(update={"measurements": slow, "scenarios": scenario_results("quick", speed=1e-4)})
