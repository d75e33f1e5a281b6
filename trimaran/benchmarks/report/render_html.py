"""A report as one HTML file that needs nothing else: the facts that `templates/report.html` shows."""

from __future__ import annotations

import shlex
from typing import Any

from trimaran.benchmarks.measure.harness import harness_sentences
from trimaran.benchmarks.measure.steadiness import unsteady
from trimaran.benchmarks.report.figures import (
    decisive,
    find,
    percentiles,
    rounds_of_race,
    rows_per_second,
    shapes_of,
    speedups_of,
)
from trimaran.benchmarks.report.html_scenarios import scenario_facts
from trimaran.benchmarks.report.kinds import kind_limits_words, kinds_table
from trimaran.benchmarks.report.limits import above_words, peaks_words, shares
from trimaran.benchmarks.report.pages import render_page
from trimaran.benchmarks.report.plots import (
    drawn_rows,
    latency_ecdf,
    series_class,
    share_bars,
    speed_against_fidelity,
    speedup_bars,
)
from trimaran.benchmarks.report.plots_layers import layer_bars, search_steps
from trimaran.benchmarks.report.report import UNSERVED, CandidateRow, Report
from trimaran.benchmarks.report.wording import (
    INTERVAL_WORDS,
    METRICS,
    ROWS_SHORT,
    ROWS_WORDS,
    VERDICT_MARKS,
    bound_words,
    count,
    environment_words,
    gates_words,
    gigabytes,
    interval,
    limit_words,
    megabytes,
    metric_name,
    metric_words,
    milliseconds,
    number,
    times,
)
from trimaran.benchmarks.scenarios.finals import uneven
from trimaran.core.artifact import Check
from trimaran.core.tasks import task
from trimaran.judging.sensitivity import Sensitivity
from trimaran.judging.stats import MARGIN

# What the template calls to write a number or draw a plot.
_FUNCTIONS: dict[str, Any] = {
    function.__name__: function
    for function in (
        count,
        interval,
        bound_words,
        latency_ecdf,
        layer_bars,
        limit_words,
        megabytes,
        metric_name,
        number,
        search_steps,
        share_bars,
        speedup_bars,
        speedups_of,
        times,
    )
}


def render_html(report: Report) -> str:
    measured = [m for row in drawn_rows(report) for m in report.measurements if m.candidate == row.name]
    return render_page(
        "report.html",
        title=f"{report.model}: Trimaran report",
        report=report,
        facts=f"{report.task} · {report.family} · {report.level} fidelity · for {report.objective} · {report.created}",
        shapes=shapes_of(report.measurements),
        tiles=_tiles(report),
        verdict_marks=VERDICT_MARKS,
        invariance_heads=["candidate", *ROWS_SHORT.values(), "served", "texts"],
        interval_meaning=INTERVAL_WORDS,
        margin=f"{MARGIN:.0%}",
        check_of=_check_of,
        speedup_rows=_speedup_rows(report),
        decisive_shape=decisive(report.profile, report.objective)[0],
        fidelity=speed_against_fidelity(report),
        fidelity_table=_fidelity_table(report),
        kinds_tables=[(row.name, *table) for row in report.candidates if (table := kinds_table(row))],
        kind_limits=kind_limits_words(report.gates),
        series=[(series_class(report, row.name), row.name) for row in drawn_rows(report)],
        latency_rows=_latency_rows(report),
        searched=[row for row in report.candidates if row.sensitivity],
        layer_rows=_layer_rows,
        search_words=_search_words,
        judged=[row for row in report.candidates if row.quality],
        invariance_rows=_invariance_rows(report),
        unserved=[row for row in report.candidates if row.verdict in UNSERVED],
        machine=_machine(report),
        harness_facts=harness_sentences(report.harness) if report.harness else (),
        command=shlex.join(report.command),
        race_rounds=rounds_of_race(measured, report.reference.name),
        **_ceiling_facts(report),
        **scenario_facts(report),
        **_FUNCTIONS,
    )


def _tiles(report: Report) -> list[tuple[str, str, str]]:
    """(name, value, detail) of the chosen candidate's most important figures."""
    if report.verdict.chosen is None:
        return []
    row = report.row(report.verdict.chosen)
    ratios = speedups_of(report, row.name)
    tiles = [
        (f"speed-up at {shape}", times(ratios[shape]), interval(ratios[shape]))
        for shape in decisive(report.profile, report.objective)
        if shape in ratios
    ]
    headline = task(report.task).headline
    if row.quality and headline in row.quality.metrics:
        tiles.append((metric_name(headline), number(row.quality.metrics[headline]), METRICS[headline].meaning))
    return [
        *tiles,
        ("size on disk", megabytes(row.size_bytes), f"{row.backend}, {row.precision}"),
        ("peak memory", megabytes(row.peak_memory_bytes), f"eager {megabytes(report.reference.peak_memory_bytes)}"),
    ]


def _check_of(row: CandidateRow, metric: str) -> Check | None:
    checks = row.quality.checks if row.quality else ()
    return next((check for check in checks if check.name == metric), None)


def _speedup_rows(report: Report) -> list[list[str]]:
    return [
        [row.name, str(shape), times(ratio), f"{ratio.low:.3f}", f"{ratio.high:.3f}"]
        for row in drawn_rows(report)
        if row.name != report.reference.name
        for shape, ratio in speedups_of(report, row.name).items()
    ]


def _latency_rows(report: Report) -> list[list[str]]:
    return [
        [
            row.name,
            str(shape),
            *(milliseconds(value) for value in percentiles(measurement)),
            f"{rows_per_second(measurement):.0f}",
            str(len(measurement.samples_ns)),
            str(len(measurement.rounds)),
        ]
        for row in drawn_rows(report)
        for shape in shapes_of(report.measurements)
        if (measurement := find(report.measurements, row.name, shape))
    ]


def _fidelity_table(report: Report) -> tuple[list[str], list[list[str]], str]:
    """Heads, rows and caption: every metric of every judged candidate."""
    judged = [(row.name, row.quality) for row in report.candidates if row.quality]
    names = list(dict.fromkeys(name for _, quality in judged for name in quality.metrics))
    rows = [
        [name, *(metric_words(quality, metric, digits=5) for metric in names), str(quality.n)]
        for name, quality in judged
    ]
    meanings = "; ".join(f"{metric_name(name)}: {METRICS[name].meaning}" for name in names if name in METRICS)
    return ["candidate", *map(metric_name, names), "texts"], rows, f"{meanings[:1].upper()}{meanings[1:]}."


def _ceiling_facts(report: Report) -> dict[str, Any]:
    return {
        "peaks": peaks_words(report) if report.ceilings else "",
        "above_ceiling": above_words(report),
        "ceiling_shares": [
            [
                reached.candidate,
                str(reached.shape),
                reached.arithmetic,
                milliseconds(reached.bare_seconds * 1e9),
                milliseconds(reached.seconds * 1e9),
                f"{reached.share:.0%}",
            ]
            for reached in shares(report)
        ],
        "products": [
            [
                str(bare.product),
                str(ceiling.shape),
                bare.arithmetic,
                bare.library,
                f"{bare.operations_per_s / 1e9:.0f}",
            ]
            for ceiling in report.ceilings
            for bare in ceiling.bare
        ],
    }


def _layer_rows(search: Sensitivity) -> list[list[str]]:
    return [
        [layer.name, number(layer.cost), number(layer.low), number(layer.high), layer.kept] for layer in search.layers
    ]


def _search_words(search: Sensitivity) -> str:
    kept = sum(layer.kept == "float" for layer in search.layers)
    return (
        f"{metric_name(search.metric)} over {count(search.texts, 'text')} that judge nothing else; the search ended "
        f"by «{search.stopped}» after {search.seconds:.0f} s with {count(kept, 'layer')} in float."
    )


def _invariance_rows(report: Report) -> list[list[str]]:
    return [
        [
            row.name,
            *(number(row.quality.changes.get(policy)) for policy in ROWS_SHORT),
            row.quality.rows,
            str(row.quality.n_batched),
        ]
        for row in report.candidates
        if row.quality
    ]


def _machine(report: Report) -> list[tuple[str, str]]:
    machine = report.environment
    chosen = report.row(report.verdict.chosen) if report.verdict.chosen else None
    restricted = [
        f"{row.name}: {environment_words(row.execution_environment)}"
        for row in report.candidates
        if row.execution_environment
    ]
    return [
        ("CPU", f"{machine.cpu}, {count(machine.cores, 'core')} usable"),
        ("Memory", gigabytes(machine.memory_bytes)),
        ("GPU", machine.gpu or "none"),
        ("System", f"{machine.system}, Python {machine.python}"),
        ("Threads", f"{report.threads}, the same for every candidate"),
        ("Profile", f"batch {report.profile.batch}, tokens {report.profile.sequence}"),
        ("Gates", f"{report.level}: {gates_words(report.gates)}"),
        ("Rows", f"served with {ROWS_WORDS[chosen.quality.rows]}" if chosen and chosen.quality else ""),
        ("Instruction sets", "; ".join(restricted)),
        ("Libraries", ", ".join(f"{name} {version}" for name, version in machine.libraries.items())),
        ("Trimaran", report.trimaran),
        ("Steadiness", " ".join(filter(None, (unsteady(report.measurements), uneven(report.scenarios))))),
    ]
