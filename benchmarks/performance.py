"""The generated parts of docs/performance.md: figures and pictures from the committed results and from nothing else.

`python benchmarks/performance.py` writes them; the text around them is written by hand.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from growth_plots import plots
from growth_results import RESULT as GROWTH
from growth_results import Curve, Growth, read_growth
from readme import BLOCK, RESULTS, ROOT

from trimaran.benchmarks.measure.quiet import noticed
from trimaran.benchmarks.report.figures import shapes_of, speedups
from trimaran.benchmarks.report.limits import peaks_words, shares
from trimaran.benchmarks.report.pages import svg_file
from trimaran.benchmarks.report.render_markdown import markdown_line
from trimaran.benchmarks.report.report import REFERENCE, Report
from trimaran.benchmarks.report.report_files import read_report
from trimaran.benchmarks.report.wording import count, interval, megabytes, milliseconds, number, times
from trimaran.core.samples import Shape
from trimaran.judging.stats import median

PAGE = ROOT / "docs" / "performance.md"
# Kinds of nodes that take less of an engine's time are not told.
_TOLD_SHARE = 0.01
# Wanted speed-ups over eager PyTorch at the three shapes.
MINILM_GOALS, BASE_GOALS = ("4.7", "3.2", "3"), ("7", "3.5", "3")
_EXPECTED = {
    "length": "linear layers grow with the tokens, attention with their square",
    "batch": "all grows with the rows",
    "size": "all grows with the weights",
}


def write_page() -> Path:
    PAGE.write_text(rendered(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    for name, drawing in drawings().items():
        (RESULTS / name).write_text(drawing, encoding="utf-8")
    return PAGE


def rendered(page: str) -> str:
    """The page with every generated block made anew; one whose result is not there says how to get it."""
    return BLOCK.sub(lambda found: f"{found[1]}{BLOCKS[found['name']]()}\n{found[3]}", page)


def drawings() -> dict[str, str]:
    return {name: svg_file(drawing) for name, drawing in plots(read_growth()).items()} if GROWTH.is_file() else {}


def engine_block() -> str:
    lines = []
    for level in ("strict", "balanced"):
        report = read_report(RESULTS / f"minilm-{level}")
        lines += _engines(report, f"MiniLM-L6 at `{level}`", MINILM_GOALS)
    return "\n".join(lines).strip()


def base_block() -> str:
    folder = RESULTS / "bert-base-balanced"
    if not (folder / "report.json").is_file():
        return "Not measured yet: `python benchmarks/base_size.py`."
    return "\n".join(_engines(read_report(folder), "BERT-base size (12x768) at `balanced`", BASE_GOALS)).strip()


def _engines(report: Report, title: str, goals: Sequence[str]) -> list[str]:
    """Speed-up and share of the ceiling of each that ran, under what is wanted."""
    shapes = shapes_of(report.measurements)
    reached = {(one.candidate, one.shape): one.share for one in shares(report)}
    largest = max(shapes, key=lambda shape: shape.batch * shape.sequence)
    heads = [title, *map(str, shapes), *([f"of the ceiling at {largest}"] if reached else [])]
    lines = [markdown_line(heads), markdown_line(["---", *["---:"] * (len(heads) - 1)])]
    wanted = "wanted" if report.level == "balanced" else "wanted at `balanced`"
    lines.append(markdown_line([wanted, *(f"≥ {goal}" for goal in goals), *(["≥ 55 %"] if reached else [])]))
    for row in report.candidates:
        ratios = speedups(report.measurements, row.name, reference=report.reference.name)
        if not ratios:
            continue
        share = [f"{reached[row.name, largest]:.0%}"] if reached and (row.name, largest) in reached else []
        name = f"**{row.name}** (chosen)" if row.verdict == "chosen" else f"{row.name} ({row.verdict})"
        lines.append(markdown_line([name, *(_ratio(ratios, shape) for shape in shapes), *share]))
    said = [f"{peaks_words(report)}"] if report.ceilings else []
    machine = f"{report.environment.cpu}, {count(report.threads, 'thread')}, {report.created[:10]}."
    return [*lines, "", " ".join([machine, *said, *filter(None, [noticed(report.others_share)])]), ""]


def _ratio(ratios: dict[Shape, object], shape: Shape) -> str:
    found = ratios.get(shape)
    return f"{times(found)} ({interval(found)})" if found else "–"  # type: ignore[arg-type]


def growth_block() -> str:
    if not GROWTH.is_file():
        return "Not measured yet: `python benchmarks/growth.py`."
    found = read_growth()
    lines = [
        f"Seeded models, eager PyTorch beside `{found.engine}`, on {found.environment.cpu}, "
        f"{count(found.threads, 'thread')}, {found.created[:10]}. "
        "The expected order is the number of operations in the model's matrix products."
    ]
    for curve in found.curves:
        lines += ["", f"![Cost by {curve.name}](../benchmarks/results/growth-{curve.name}.svg)", ""]
        lines += [f"Expected: {_EXPECTED[curve.name]}.", "", *_curve(curve, found.engine)]
        if busy := noticed(curve.others_share):
            lines += ["", busy]
    if found.served:
        lines += ["", "![Models served](../benchmarks/results/growth-served.svg)", "", *_served(found)]
    return "\n".join(lines)


def _curve(curve: Curve, engine: str) -> list[str]:
    """Times, and how many times more than at the first point."""
    first = curve.points[0]
    lines = [
        markdown_line([curve.unit, "expected", REFERENCE, f"`{engine}`"]),
        markdown_line(["---:"] * 4),
    ]
    for point in curve.points:
        cells = [point.words or f"{point.x:,}", f"{point.operations / first.operations:.3g} times"]
        for name in (REFERENCE, engine):
            now, then = point.seconds(name), first.seconds(name)
            cells.append(f"{milliseconds(now * 1e9)} ms, {now / then:.3g} times" if now and then else "–")
        lines.append(markdown_line(cells))
    return lines


def _served(found: Growth) -> list[str]:
    return [
        "Expected: memory grows with the models, the answer of one takes as long as before.",
        "",
        markdown_line(["models in one server", "ready after", "memory", "p50 of one, over gRPC"]),
        markdown_line(["---:"] * 4),
        *(
            markdown_line(
                [
                    str(one.models),
                    f"{one.started_ns / 1e9:.1f} s",
                    megabytes(one.memory_bytes),
                    f"{milliseconds(median(one.latencies_ns))} ms",
                ]
            )
            for one in found.served
        ),
    ]


def levers_block() -> str:
    """What single settings of an engine do to its speed and its answers, for each artifact that was tried."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("levers*.json"))]
    if not found:
        return "Not measured yet: `python benchmarks/levers.py ARTIFACT -o benchmarks/results/levers-NAME.json`."
    return "\n\n".join("\n".join(_levers(result)) for result in found)


def _levers(result: dict[str, Any]) -> list[str]:
    shapes = list(dict.fromkeys(row["shape"] for row in result["ratios"]))
    names = list(dict.fromkeys(row["lever"] for row in result["ratios"]))
    lines = [
        markdown_line([f"`{result['candidate']}`, speed-up by", *shapes, "answers moved, mean 1−cos"]),
        markdown_line(["---", *["---:"] * (len(shapes) + 1)]),
    ]
    for name in names:
        rows = {row["shape"]: row for row in result["ratios"] if row["lever"] == name}
        cells = [
            f"{row['ratio']:.2f} ({row['low']:.2f}–{row['high']:.2f}), {row['is']}" if (row := rows.get(shape)) else "–"
            for shape in shapes
        ]
        moved = result["answers"].get(name, {}).get("mean_cosine_distance")
        lines.append(markdown_line([name, *cells, number(max(0.0, moved)) if moved is not None else "–"]))
    place = f"{result['environment']['cpu']}, {count(result['threads'], 'thread')}"
    nodes = result["time_by_kind_of_node"]
    lines += ["", f"{place}. Where its time goes, by kind of node:", ""] if nodes else ["", f"{place}."]
    for shape, kinds in nodes.items():
        told = ", ".join(f"{kind} {share:.1%}" for kind, share in kinds.items() if share >= _TOLD_SHARE)
        lines.append(f"- at {shape}: {told}")
    return lines


def operation_block() -> str:
    """What starting, deploying and serving take, from every result of theirs that is there."""
    rows = [row for name, told in OPERATION.items() for result in _results(name) for row in told(result)]
    heads = ["MiniLM-L6 unless it says otherwise", "found", "wanted"]
    return "\n".join([markdown_line(heads), markdown_line(["---", "---:", "---:"]), *map(markdown_line, rows)])


def _results(name: str) -> list[dict[str, Any]]:
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob(f"{name}.json"))]


def _deployment(result: dict[str, Any]) -> list[list[str]]:
    first, again = result["from_nothing"], result["once_more"]
    of = "" if result["model"] == "minilm" else f" of a {result['model']} model at `balanced`"
    most = next(claim for claim in result["claims"] if claim.startswith("from nothing"))
    return [
        [f"`trimaran deploy`{of} from nothing", f"{first['seconds']:.0f} s", f"≤ {most.split()[-2]} s"],
        [f"its memory{of}, all processes", megabytes(first["peak_memory_bytes"]), "≤ 4,000 MB"],
        [f"the same once more{of}", f"{again['seconds']:.0f} s", "less"],
    ]


def _start(result: dict[str, Any]) -> list[list[str]]:
    return [["`trimaran serve` to the first correct answer", f"{result['median_s']:.2f} s", "≤ 3 s"]]


def _recovery(result: dict[str, Any]) -> list[list[str]]:
    return [
        ["a killed stub under load, to the next right answer", f"{result['median_stub_s']:.2f} s", "≤ 5 s"],
        ["a killed server under load, to the next right answer", f"{result['median_server_s']:.2f} s", "it comes back"],
    ]


def _serving(result: dict[str, Any]) -> list[list[str]]:
    callers, requests = result["callers"], result["memory"][-1][0]
    return [
        ["one caller over gRPC, p50 above in process", f"{result['added_p50_ms']:.2f} ms", "≤ 1.2 ms"],
        [
            f"{callers} callers, answers beside {callers} texts a call in process",
            f"{result['share_of_in_process']:.0%}",
            "≥ 85 %",
        ],
        [f"the server's memory over {requests:,} requests", f"{100 * result['memory_growth']:+.1f} %", "≤ +2 %"],
    ]


def _overload(result: dict[str, Any]) -> list[list[str]]:
    answered = result["statuses"]["200"]
    refused = sum(number for status, number in result["statuses"].items() if status != "200")
    where = f"{result['what']}, at {'Triton' if result['target'] == 'triton' else 'the gateway'}"
    grown = f"{100 * result['memory']['growth']:+.1f} %"
    return [
        [f"{where}: answered, refused", f"{answered:,}, {refused:,}", "every one of them"],
        [f"{where}: wrong, lost", f"{result['wrong']}, {result['lost']}", "0, 0"],
        [f"{where}: longest answer", f"{result['latency_s']['max']:.1f} s", f"≤ {result['latency_bound_s']:.1f} s"],
        [f"{where}: memory", grown, "≤ +5 %"],
    ]


def _search(result: dict[str, Any]) -> list[list[str]]:
    found = []
    for name, row in result["candidates"].items():
        found += [
            [f"`trimaran quantize --to {name}` at `{result['fidelity']}`", f"{row['command_s']:.0f} s", "≤ 180 s"],
            ["its Spearman on STS-B's dev set, of eager's", f"{row['sts_share_of_eager']:.2%}", "≥ 99.9 %"],
        ]
    return found


OPERATION: dict[str, Callable[[dict[str, Any]], list[list[str]]]] = {
    "deployment*": _deployment,
    "int8-search": _search,
    "cold-start": _start,
    "served": _serving,
    "load-*": _overload,
    "recovery": _recovery,
}
BLOCKS: dict[str, Callable[[], str]] = {
    "operation": operation_block,
    "engines": engine_block,
    "base-size": base_block,
    "growth": growth_block,
    "levers": levers_block,
}


if __name__ == "__main__":
    print(write_page())
