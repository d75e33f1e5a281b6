"""A report as one HTML file that needs nothing else: verdict first, then the pictures and every number."""

from __future__ import annotations

import shlex
from html import escape

from trimaran.benchmarks.measure.harness import floor_ns, overhead, twins_verdicts
from trimaran.benchmarks.report.figures import (
    decisive,
    find,
    percentiles,
    rows_per_second,
    shapes_of,
    speedups,
    unsteady,
)
from trimaran.benchmarks.report.html_limits import limits
from trimaran.benchmarks.report.html_parts import figure, legend, numbers, page, panels, unbroken
from trimaran.benchmarks.report.html_scenarios import final_numbers, layers, load, shapes, where_time_goes
from trimaran.benchmarks.report.html_tables import candidates_table, invariance_table, table
from trimaran.benchmarks.report.plots import (
    drawn_rows,
    latency_ecdf,
    series_class,
    speed_against_fidelity,
    speedup_bars,
)
from trimaran.benchmarks.report.report import UNSERVED, Report
from trimaran.benchmarks.report.svg import element
from trimaran.benchmarks.report.wording import (
    METRICS,
    ROWS_WORDS,
    count,
    environment_words,
    gates_words,
    gigabytes,
    interval,
    megabytes,
    metric_name,
    metric_words,
    milliseconds,
    number,
    times,
)
from trimaran.benchmarks.scenarios.finals import uneven
from trimaran.core.tasks import task
from trimaran.judging.stats import CONFIDENCE, MARGIN


def render_html(report: Report) -> str:
    sections = (
        _opening(report),
        _candidates(report),
        _speed(report),
        _fidelity(report),
        _latency(report),
        shapes(report),
        load(report),
        where_time_goes(report),
        limits(report),
        layers(report),
        _invariance(report),
        _rejections(report),
        final_numbers(report),
        _machine(report),
        _harness(report),
        _reproduce(report),
    )
    return page(f"{report.model}: Trimaran report", sections)


def _opening(report: Report) -> str:
    verdict = report.verdict
    facts = f"{report.task} · {report.family} · {report.level} fidelity · for {report.objective} · {report.created}"
    tone = "verdict" if verdict.chosen else "verdict none"
    return (
        '<header><p class="kicker">Trimaran report</p>'
        f'<h1>{escape(report.model)}</h1><p class="facts">{escape(facts)}</p></header>\n'
        f'<section class="{tone}" aria-label="Verdict"><p class="speed">{unbroken(verdict.speed)}</p>'
        f'<p class="truth">{unbroken(verdict.truth)}</p></section>\n{_tiles(report)}'
    )


def _tiles(report: Report) -> str:
    if report.verdict.chosen is None:
        return ""
    row = report.row(report.verdict.chosen)
    ratios = speedups(report.measurements, row.name, reference=report.reference.name)
    tiles = [
        (f"speed-up at {shape}", times(ratios[shape]), f"{interval(ratios[shape])} at {CONFIDENCE:.0%}")
        for shape in decisive(report.profile, report.objective)
        if shape in ratios
    ]
    headline = task(report.task).headline
    if row.quality and headline in row.quality.metrics:
        tiles.append((metric_name(headline), number(row.quality.metrics[headline]), METRICS[headline].meaning))
    eager = report.reference
    tiles.append(("size on disk", megabytes(row.size_bytes), f"{row.backend}, {row.precision}"))
    tiles.append(("peak memory", megabytes(row.peak_memory_bytes), f"eager {megabytes(eager.peak_memory_bytes)}"))
    cells = "".join(
        f'<div class="tile"><dt>{escape(name)}</dt><dd>{escape(value)}<small>{escape(detail)}</small></dd></div>'
        for name, value, detail in tiles
    )
    return f'<dl class="tiles">{cells}</dl>'


def _candidates(report: Report) -> str:
    return (
        "<h2>Candidates</h2><p>Speed-up is the median time of eager PyTorch over the candidate's, at batch x tokens, "
        f"with its {CONFIDENCE:.0%} interval. Quality is held against the {escape(report.level)} gates; under the "
        "batch change stands how rows may share a call.</p>" + candidates_table(report)
    )


def _speed(report: Report) -> str:
    drawings = [
        figure(f"{count(shape.batch, 'row')} of {count(shape.sequence, 'token')}", speedup_bars(report, shape))
        for shape in shapes_of(report.measurements)
    ]
    rows = [
        [row.name, str(shape), times(ratio), f"{ratio.low:.3f}", f"{ratio.high:.3f}"]
        for row in drawn_rows(report)
        if row.name != report.reference.name
        for shape, ratio in speedups(report.measurements, row.name, reference=report.reference.name).items()
    ]
    marks = "★ chosen, ✓ passed, ✕ rejected for its answers" + (", ○ eager otherwise" if report.baselines else "")
    return f"<h2>How much faster</h2><p>Whiskers span the interval. {marks}.</p>{panels(drawings)}" + numbers(
        "speed-ups", table(["candidate", "shape", "speed-up", "low", "high"], rows)
    )


def _latency(report: Report) -> str:
    drawings = [figure(f"Latency at {shape}", latency_ecdf(report, shape)) for shape in shapes_of(report.measurements)]
    swatches = [
        (element("path", d="M1 5H33", class_=series_class(report, row.name)), row.name) for row in drawn_rows(report)
    ]
    rows = [
        [
            row.name,
            str(shape),
            *(milliseconds(value) for value in percentiles(found)),
            f"{rows_per_second(found):.0f}",
            str(len(found.samples_ns)),
            str(len(found.rounds)),
        ]
        for row in drawn_rows(report)
        for shape in shapes_of(report.measurements)
        if (found := find(report.measurements, row.name, shape))
    ]
    heads = ["candidate", "shape", "p50 ms", "p90 ms", "p99 ms", "rows/s", "samples", "rounds"]
    return (
        "<h2>Latency distributions</h2><p>The share of calls that took no longer: further left is faster, steeper is "
        f"steadier.</p>{legend(swatches)}{panels(drawings)}"
        + numbers("latencies", table(heads, rows, caption="Percentiles are observed samples."))
    )


def _fidelity(report: Report) -> str:
    drawing = speed_against_fidelity(report)
    if drawing is None:
        return ""
    shape = decisive(report.profile, report.objective)[0]
    names = list(dict.fromkeys(name for row in report.candidates if row.quality for name in row.quality.metrics))
    rows = [
        [row.name, *(metric_words(row.quality, name, digits=5) for name in names), str(row.quality.n)]
        for row in report.candidates
        if row.quality
    ]
    meanings = "; ".join(f"{metric_name(name)}: {METRICS[name].meaning}" for name in names if name in METRICS)
    heads = ["candidate", *(metric_name(name) for name in names), "texts"]
    return (
        "<h2>Speed against fidelity</h2><p>Up is faster, right is truer to eager. The ring marks the choice; a cross "
        "broke a gate, this one or another; the line joins those that nothing beats in both.</p>"
        + panels([figure(f"Speed-up at {shape}", drawing)], one=True)
        + numbers("fidelity", table(heads, rows, caption=f"{meanings[:1].upper()}{meanings[1:]}."))
    )


def _invariance(report: Report) -> str:
    judged = [row.quality for row in report.candidates if row.quality]
    if not judged:
        return ""
    return (
        "<h2>Alone and in a batch</h2><p>The worst change of one text's answer when it shares a batch with "
        f"{count(judged[0].neighbours, 'other')}, against the same text alone. Each candidate is measured and served "
        "with the widest grouping that keeps the gate.</p>" + invariance_table(report)
    )


def _rejections(report: Report) -> str:
    rows = [row for row in report.candidates if row.verdict in UNSERVED]
    if not rows:
        return "<h2>What was rejected</h2><p>Nothing: every candidate ran and kept its gates.</p>"
    items = "".join(
        f"<li><strong>{escape(row.name)}</strong> {escape(row.verdict)}: {unbroken(row.reason)}</li>" for row in rows
    )
    return f'<h2>What was rejected, and why</h2><ul class="why">{items}</ul>'


def _machine(report: Report) -> str:
    found = report.environment
    chosen = report.row(report.verdict.chosen) if report.verdict.chosen else None
    restricted = [
        f"{row.name}: {environment_words(row.execution_environment)}"
        for row in report.candidates
        if row.execution_environment
    ]
    pairs = [
        ("CPU", f"{found.cpu}, {count(found.cores, 'core')} usable"),
        ("Memory", gigabytes(found.memory_bytes)),
        ("GPU", found.gpu or "none"),
        ("System", f"{found.system}, Python {found.python}"),
        ("Threads", f"{report.threads}, the same for every candidate"),
        ("Profile", f"batch {report.profile.batch}, tokens {report.profile.sequence}"),
        ("Gates", f"{report.level}: {gates_words(report.gates)}"),
        ("Rows", f"served with {ROWS_WORDS[chosen.quality.rows]}" if chosen and chosen.quality else ""),
        ("Instruction sets", "; ".join(restricted)),
        ("Libraries", ", ".join(f"{name} {version}" for name, version in found.libraries.items())),
        ("Trimaran", report.trimaran),
        ("Steadiness", " ".join(filter(None, (unsteady(report.measurements), uneven(report.scenarios))))),
        ("Notes", " ".join(report.notes)),
    ]
    items = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in pairs if value)
    return f'<h2>Machine and versions</h2><dl class="machine">{items}</dl>'


def _harness(report: Report) -> str:
    """What the harness does to what it measures, where the suite asked for it."""
    if report.harness is None:
        return ""
    facts = []
    if (floor := floor_ns(report.harness)) is not None:
        facts.append(f"A session that does nothing takes {floor / 1e3:.3g} µs under the harness: its floor.")
    if cost := overhead(report.harness):
        facts.append(
            f"A call of {cost.call_ns / 1e6:.3g} ms takes {cost.ratio.median:.4f} times ({cost.ratio.low:.4f}–"
            f"{cost.ratio.high:.4f}) as long under the harness as in a bare loop."
        )
    if report.harness.twins:
        (again, verdict), (twice, doubled) = twins_verdicts(report.harness.twins)
        facts.append(
            f"The same engine against itself: {verdict} ({interval(again)}). Called twice for once: {doubled} "
            f"({interval(twice)})."
        )
    return f'<h2>The harness itself</h2><ul class="why">{"".join(f"<li>{unbroken(f)}</li>" for f in facts)}</ul>'


def _reproduce(report: Report) -> str:
    rounds = max((len(measurement.rounds) for measurement in report.measurements), default=0)
    return (
        f"<h2>Reproduce</h2><pre><code>{escape(shlex.join(report.command))}</code></pre>"
        f'<p class="note">Each candidate ran in a process of its own, one at a time, interleaved in '
        f"{count(rounds, 'round')} of random order with the warm-up kept apart. Intervals come from resampling "
        f"rounds, then samples. A difference below {MARGIN:.0%}, or one that the interval does not separate, counts "
        "as none. The raw samples are in report.json.</p>"
    )
