"""docs/compare.md, made from the committed result and from nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from clients import CLIENTS
from results import PeerRow, PeersRun, ServersRun, read_result, read_servers
from table import ROOT

from trimaran.benchmarks.measure.quiet import noticed
from trimaran.benchmarks.measure.steadiness import unsteady
from trimaran.benchmarks.report.figures import find, rows_per_second, speedups
from trimaran.benchmarks.report.markdown import markdown_table, markdown_text
from trimaran.benchmarks.report.wording import (
    INTERVAL_WORDS,
    count,
    environment_words,
    megabytes,
    metric_name,
    milliseconds,
    number,
    ratio_words,
)
from trimaran.benchmarks.scenarios.finals import throughput
from trimaran.benchmarks.scenarios.results import ClosedPoint
from trimaran.judging.stats import median, percentile

PAGE = ROOT / "docs" / "compare.md"
_METRICS = ("mean_cosine_distance", "neighbour_overlap", "batch_change")


def write_page() -> Path:
    PAGE.write_text(render_page(read_result()), encoding="utf-8")
    return PAGE


def render_page(run: PeersRun) -> str:
    return "\n".join(
        (
            "# Beside its peers",
            "",
            "<!-- made by `make peers` from benchmarks/results/peers.json -->",
            f"The real {run.model}, the same texts, {run.threads} threads for all, on {run.environment.cpu},",
            f"{run.created[:10]}. Text in, vectors out: tokenizing counts, and the wire too where a peer is a server.",
            "One call answers all texts of a set, in batches of 32 where a peer must be told.",
            "Each peer runs in its own environment (`benchmarks/peers/*.txt`) and its own process, interleaved in",
            f"rounds with the others; the speed-up is over {run.reference}: {INTERVAL_WORDS}.",
            "",
            "## Speed",
            "",
            *_speed(run),
            "",
            *_load(run),
            *_by_clients(read_servers()),
            "## Answers, memory and start",
            "",
            f"Fidelity is held against {run.reference} on {run.judging_texts} texts, each asked alone. Batch change is",
            "the worst change of one text's vector when it is asked together with 31 others. Memory is the largest",
            "resident set of the process that has the model. A cold start runs from the start of the process to the",
            "first correct answer; exporting and quantising are not part of it.",
            "",
            *_answers(run),
            "",
            *_notes(run),
            "`make peers` makes the environments, runs all of it again and writes this page; the raw samples are in",
            "[`benchmarks/results/peers.json`](../benchmarks/results/peers.json).",
            "",
        )
    )


def _speed(run: PeersRun) -> list[str]:
    heads = ["peer", "what it runs", *(f"{texts.words}, {texts.tokens} tokens" for texts in run.sets)]
    return markdown_table(heads, [_speed_cells(run, row) for row in run.peers], left=2)


def _speed_cells(run: PeersRun, row: PeerRow) -> list[str]:
    ratios = speedups(run.measurements, row.name, reference=run.reference)
    cells = []
    for texts in run.sets:
        measurement = find(run.measurements, row.name, texts.shape)
        if measurement is None:
            cells.append("–")
            continue
        rate, spent_ns = rows_per_second(measurement), median(measurement.samples_ns)
        time = f"{rate:,.0f} texts/s" if texts.shape.batch > 1 else f"{milliseconds(spent_ns)} ms"
        ratio = None if row.name == run.reference else ratios.get(texts.shape)
        cells.append(f"{ratio_words(ratio)}, {time}" if ratio else time)
    how = "did not finish" if row.cold_starts_ns else "cannot run here"
    why = f"; **{how}**: {markdown_text(row.failure)}" if row.failure else ""
    return [f"**{markdown_text(row.name)}** {row.version or ''}".strip(), f"{markdown_text(row.describe)}{why}", *cells]


def _load(run: PeersRun) -> list[str]:
    """Requests per second of each server by callers: the median of its turns and their span."""
    if not run.loads:
        return []
    callers = sorted({point.concurrency for load in run.loads for point in load.points})
    turns = Counter(load.candidate for load in run.loads)
    rows = []
    for name in turns:
        mine = [load for load in run.loads if load.candidate == name]
        rates = [_rates([p for load in mine for p in load.points if p.concurrency == number]) for number in callers]
        why = next((f": {markdown_text(load.cut)}" for load in mine if load.cut), "")
        rows.append([f"{markdown_text(name)}{why}", *rates])
    return [
        "## Servers under load",
        "",
        "Callers ask one text each over HTTP, the next when answered; requests per second, the median of",
        f"{max(turns.values())} turns and their span. The callers share the cores with the server. Their requests are",
        "made beforehand and their answers are not decoded: this is what the server can do.",
        "",
        *markdown_table(["server", *(count(number, "caller") for number in callers)], rows, left=1),
        "",
    ]


def _rates(points: list[ClosedPoint]) -> str:
    rates = sorted(throughput(point) for point in points)
    if not rates:
        return "–"
    failures = sum(point.failures for point in points)
    failed = f", {failures} failed" if failures else ""
    return f"{rates[len(rates) // 2]:,.0f} ({rates[0]:,.0f}–{rates[-1]:,.0f}){failed}"


def _by_clients(run: ServersRun | None) -> list[str]:
    """What ordinary clients get of each server: nothing is prepared, and every answer is decoded to numbers."""
    if run is None:
        return []
    callers = sorted({point.concurrency for load in run.loads for point in load.points})
    order = [*CLIENTS, *sorted({load.driver for load in run.loads})]
    rows = []
    for client, server in sorted({(load.driver, load.candidate) for load in run.loads}, key=_by(order)):
        mine = [load for load in run.loads if (load.driver, load.candidate) == (client, server)]
        points = {number: [p for load in mine for p in load.points if p.concurrency == number] for number in callers}
        why = next((f": {markdown_text(load.cut)}" for load in mine if load.cut), "")
        version = run.versions.get(client, "")
        names = [f"{markdown_text(client)} {version}".strip(), f"{markdown_text(server)}{why}"]
        rows.append([*names, *(f"{_rates(points[number])}{_latencies(points[number])}" for number in callers)])
    turns = max(Counter((load.driver, load.candidate) for load in run.loads).values())
    return [
        "## Servers asked by ordinary clients",
        "",
        "<!-- made from benchmarks/results/servers.json -->",
        f"The same {run.texts} texts for all, one a request, on {run.environment.cpu}, {run.created[:10]}. Callers of",
        "one process share a client object, keep their connections, and decode every answer to numbers. Requests per",
        f"second, the median of {count(turns, 'turn')} in random order and their span; then p50 and p99 of all turns.",
        "Clients and servers share the cores, so a heavy client also slows the server. «In process» has no server.",
        "",
        *markdown_table(["client", "server", *(count(number, "caller") for number in callers)], rows, left=2),
        "",
        "`python benchmarks/peers/run.py --servers-only` measures it again.",
        "",
    ]


def _by(order: Sequence[str]) -> Callable[[tuple[str, str]], tuple[int, str]]:
    return lambda row: (order.index(row[0]), row[1])


def _latencies(points: list[ClosedPoint]) -> str:
    pooled = [latency for point in points for latency in point.latencies_ns]
    if not pooled:
        return ""
    return f"; {milliseconds(percentile(pooled, 50))} / {milliseconds(percentile(pooled, 99))} ms"


def _answers(run: PeersRun) -> list[str]:
    rows = []
    for row in run.peers:
        start = f"{median(row.cold_starts_ns) / 1e9:.2f} s" if row.cold_starts_ns else "–"
        # Rounding can put a distance of zero a last digit below zero.
        values = [number(max(0.0, row.metrics[name])) if name in row.metrics else "–" for name in _METRICS]
        rows.append([markdown_text(row.name), *values, megabytes(row.memory_bytes), start])
    heads = ["peer", *(metric_name(name) for name in _METRICS), "peak memory", "cold start"]
    return markdown_table(heads, rows, left=1)


def _notes(run: PeersRun) -> list[str]:
    restricted = [
        f"- {markdown_text(row.name)} runs with `{environment_words(row.execution_environment)}`: "
        "it dies of SIGILL with the instructions that this CPU advertises."
        for row in run.peers
        if row.execution_environment
    ]
    remarks = [unsteady(run.measurements), noticed(run.others_share)]
    lines = [*restricted, *(f"- {markdown_text(remark)}" for remark in remarks if remark)]
    return [*lines, ""] if lines else []


if __name__ == "__main__":
    print(write_page())
