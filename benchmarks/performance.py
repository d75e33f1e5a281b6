"""The generated parts of docs/performance.md: figures and plots from the committed results and from nothing else.

`python benchmarks/performance.py` writes them; the text around them is written by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import experiment
from experiment import EVERY_INSTRUCTION, INSTRUCTIONS, RESULTS, ROOT, read_results, reports_by_instructions, table
from faults import FAULTS
from former_speed import former_rows
from growth_results import RESULT as GROWTH
from growth_results import Curve, ServedModels, plots, read_growth
from int8_search import search_rows

from trimaran.benchmarks.measure.quiet import noticed
from trimaran.benchmarks.report.figures import largest, shapes_of, speedups_of
from trimaran.benchmarks.report.limits import above_words, peaks_words, shares
from trimaran.benchmarks.report.pages import svg_file
from trimaran.benchmarks.report.report import REFERENCE, Report
from trimaran.benchmarks.report.report_files import read_report
from trimaran.benchmarks.report.wording import count, megabytes, milliseconds, number, ratio_words
from trimaran.benchmarks.scenarios.finals import final
from trimaran.judging.stats import median

PAGE = ROOT / "docs" / "performance.md"
# Kinds of nodes that take less of an engine's time are left out.
_SHOWN_SHARE = 0.01
# Wanted speed-ups over eager PyTorch at the three shapes.
MINILM_GOALS, BASE_GOALS, LONG_GOALS = ("4.7", "3.2", "3"), ("7", "3.5", "3"), ("", "3.2", "3")
AVX2_GOALS = ("5", "2.5", "2.2")
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
    """The page with every generated block made anew; a block without a result says how to get one."""
    return experiment.rendered(page, BLOCKS)


def drawings() -> dict[str, str]:
    return {name: svg_file(plot) for name, plot in plots(read_growth()).items()} if GROWTH.is_file() else {}


def engine_block() -> str:
    return "\n\n".join(
        _engines(report, f"MiniLM-L6 at `{level}`, {instructions}", MINILM_GOALS)
        for level in ("strict", "balanced")
        for instructions, report in reports_by_instructions(f"minilm-{level}")
    )


def base_block() -> str:
    folder = RESULTS / "bert-base-balanced"
    if not (folder / "report.json").is_file():
        return "Not measured yet: `python benchmarks/base_size.py`."
    return _engines(read_report(folder), "BERT-base size (12x768) at `balanced`", BASE_GOALS)


def _engines(report: Report, title: str, goals: Sequence[str], *, wanted_at: str = "balanced") -> str:
    """Speed-up and share of the ceiling of each candidate that ran, under what is wanted."""
    shapes = shapes_of(report.measurements)
    reached = {share.candidate: share.share for share in shares(report) if share.shape == largest(shapes)}
    heads = [title, *map(str, shapes), *([f"of the ceiling at {largest(shapes)}"] if reached else [])]
    wanted = "wanted" if report.level == wanted_at else f"wanted at `{wanted_at}`"
    rows = [[wanted, *(goal and f"≥ {goal}" for goal in goals), *(["≥ 55 %"] if reached else [])]]
    for row in report.candidates:
        if ratios := speedups_of(report, row.name):
            name = f"**{row.name}** (chosen)" if row.verdict == "chosen" else f"{row.name} ({row.verdict})"
            share = [f"{reached[row.name]:.0%}"] if row.name in reached else []
            rows.append([name, *(ratio_words(ratios.get(shape)) for shape in shapes), *share])
    machine = f"{report.environment.cpu}, {count(report.threads, 'thread')}, {report.created[:10]}."
    peaks = peaks_words(report) if report.ceilings else ""
    remarks = [machine, peaks, above_words(report), noticed(report.others_share)]
    return f"{table(heads, rows)}\n\n{' '.join(filter(None, remarks))}"


def long_block() -> str:
    folder = RESULTS / "minilm-long"
    if not (folder / "report.json").is_file():
        return "Not measured yet: `python benchmarks/long_texts.py`."
    return _engines(read_report(folder), "MiniLM-L6 at `strict`, up to 512 tokens", LONG_GOALS, wanted_at="strict")


def without_vnni_block() -> str:
    folder = RESULTS / "avx2-minilm"
    if not (folder / "report.json").is_file():
        return "Not measured yet: `python benchmarks/without_vnni.py`."
    report = read_report(folder)
    race = _engines(report, "MiniLM-L6 at `strict`, without VNNI", AVX2_GOALS, wanted_at="strict")
    return f"{race}\n\n{_mixed_lengths(report)}"


def _mixed_lengths(report: Report) -> str:
    """Real tokens a second on batches of real texts, beside eager PyTorch's."""
    measured = [result for result in report.scenarios if result.scenario == "mixed-lengths"]
    rates = {result.candidate: figure.value for result in measured if (figure := final(result)) is not None}
    eager = rates.pop(REFERENCE, None)
    if eager is None:
        return "Texts of mixed lengths were not measured."
    rows = [[name, f"{rate:,.0f}", f"{rate / eager:.2f}×"] for name, rate in rates.items()]
    heads = [f"{measured[0].batch} texts of mixed lengths a call", "real tokens a second", "over eager"]
    return table(heads, [["eager PyTorch", f"{eager:,.0f}", ""], *rows])


def growth_block() -> str:
    if not GROWTH.is_file():
        return "Not measured yet: `python benchmarks/growth.py`."
    growth = read_growth()
    parts = [
        f"Seeded models, eager PyTorch beside `{growth.engine}`, on {growth.environment.cpu}, "
        f"{count(growth.threads, 'thread')}, {growth.created[:10]}. "
        "The expected order is the number of operations in the model's matrix products."
    ]
    for curve in growth.curves:
        parts += [
            f"![Cost by {curve.name}](../benchmarks/results/growth-{curve.name}.svg)",
            f"Expected: {_EXPECTED[curve.name]}.",
            _curve(curve, growth.engine),
            *filter(None, [noticed(curve.others_share)]),
        ]
    if growth.served:
        parts += ["![Models served](../benchmarks/results/growth-served.svg)", _served(growth.served)]
    return "\n\n".join(parts)


def _curve(curve: Curve, engine: str) -> str:
    """Times, and how many times more than at the first point."""
    first = curve.points[0]
    rows = []
    for point in curve.points:
        cells = [point.words or f"{point.x:,}", f"{point.operations / first.operations:.3g} times"]
        for name in (REFERENCE, engine):
            now, then = point.seconds(name), first.seconds(name)
            cells.append(f"{milliseconds(now * 1e9)} ms, {now / then:.3g} times" if now and then else "–")
        rows.append(cells)
    return table([curve.unit, "expected", REFERENCE, f"`{engine}`"], rows, left=0)


def _served(served: Sequence[ServedModels]) -> str:
    rows = [
        [
            str(one.models),
            f"{one.started_ns / 1e9:.1f} s",
            megabytes(one.memory_bytes),
            f"{milliseconds(median(one.latencies_ns))} ms",
        ]
        for one in served
    ]
    expected = "Expected: memory grows with the models, the answer of one takes as long as before."
    heads = ["models in one server", "ready after", "memory", "p50 of one, over gRPC"]
    return f"{expected}\n\n{table(heads, rows, left=0)}"


def _each_result(pattern: str, shown: Callable[[dict[str, Any]], str], command: str) -> str:
    results = read_results(pattern, RESULTS)
    return "\n\n".join(map(shown, results)) if results else f"Not measured yet: `{command}`."


def levers_block() -> str:
    """What single settings of an engine do to its speed and its answers, for each artifact that was tried."""
    command = "python benchmarks/levers.py ARTIFACT -o benchmarks/results/levers-NAME.json"
    return _each_result("levers*", _levers, command)


def _levers(result: dict[str, Any]) -> str:
    shapes = list(dict.fromkeys(row["shape"] for row in result["ratios"]))
    rows = []
    for name in dict.fromkeys(row["lever"] for row in result["ratios"]):
        ratios = {row["shape"]: row for row in result["ratios"] if row["lever"] == name}
        cells = [
            f"{row['ratio']:.2f} ({row['low']:.2f}–{row['high']:.2f}), {row['is']}"
            if (row := ratios.get(shape))
            else "–"
            for shape in shapes
        ]
        moved = result["answers"].get(name, {}).get("mean_cosine_distance")
        rows.append([name, *cells, number(max(0.0, moved)) if moved is not None else "–"])
    heads = [f"`{result['candidate']}`, speed-up by", *shapes, "answers moved, mean 1−cos"]
    machine = f"{result['environment']['cpu']}, {count(result['threads'], 'thread')}."
    nodes = [
        f"- at {shape}: " + ", ".join(f"{kind} {share:.1%}" for kind, share in kinds.items() if share >= _SHOWN_SHARE)
        for shape, kinds in result["time_by_kind_of_node"].items()
    ]
    told = [f"{machine} Where its time goes, by kind of node:", "", *nodes] if nodes else [machine]
    return "\n".join([table(heads, rows), "", *told])


def public_sets_block() -> str:
    """How true the INT8 candidate is on public sets, for each instruction set that was tried."""
    return _each_result("text-kinds*", _public_sets, "python benchmarks/text_kinds.py --data FOLDER")


def _public_sets(result: dict[str, Any]) -> str:
    heads = [f"`{result['candidate']}` at `{result['fidelity']}`, {INSTRUCTIONS[result['products_by']]}", "texts"]
    rows = [["wanted", "", "≤ 0.0012", "≤ 0.006", "", "≥ 0.995"]]
    for name, row in result["public_sets"].items():
        values = [number(row[key]) for key in ("mean", "tail", "worst")]
        rows.append([name, f"{row['n']:,}", *values, number(row["epsilon_recall"], digits=4)])
    unusual = result["shipped_kinds"]["unusual"]
    rows.append(
        ["unusual texts (shipped)", f"{unusual['n']}", number(unusual["mean"]), "–", number(unusual["worst"]), "–"]
    )
    broken = [claim for claim, holds in result["claims"].items() if not holds]
    words = f"Not kept: {'; '.join(broken)}." if broken else "All of it is kept, and no unusual text is above 0.02."
    shown = table([*heads, "mean 1−cos", "1 % tail", "worst", "ε-recall@10"], rows)
    limited = f", oneDNN limited to {limit}" if (limit := result["instructions"]) != EVERY_INSTRUCTION else ""
    return f"{shown}\n\n{words} {result['environment']['cpu']}{limited}, {count(result['threads'], 'thread')}."


def operation_block() -> str:
    """What starting, deploying and serving take, from every result of theirs that is there."""
    rows = [
        [*row, result["environment"]["cpu"]]
        for name, rows_of in OPERATION.items()
        for result in read_results(name)
        for row in rows_of(result)
    ]
    return table(["MiniLM-L6 unless it says otherwise", "found", "wanted", "CPU"], rows)


def _deployment(result: dict[str, Any]) -> list[list[str]]:
    first, again = result["from_nothing"], result.get("once_more")
    size, _, quick = result["model"].partition(" ")
    quickly = f" with `{quick}`" if quick else ""
    of = quickly if size == "minilm" else f" of a {size} model at `balanced`"
    most_s = next(claim for claim in result["claims"] if claim.startswith("from nothing")).split()[-2]
    most_gb = float(next(claim for claim in result["claims"] if claim.endswith("GB of memory")).split()[2])
    return [
        [f"`trimaran deploy`{of} from nothing", f"{first['seconds']:.0f} s", f"≤ {most_s} s"],
        [f"its memory{of}, all processes", megabytes(first["peak_memory_bytes"]), f"≤ {1000 * most_gb:,.0f} MB"],
        *([[f"the same once more{of}", f"{again['seconds']:.0f} s", "less"]] if again else []),
    ]


def _long_text(result: dict[str, Any]) -> list[list[str]]:
    """Of the longest text: what its call takes beside the opened engine."""
    rows = []
    for name, calls in result["engines"].items():
        length, call = list(calls.items())[-1]
        rows.append(
            [
                f"one text of {int(length):,} tokens, four layers of ModernBERT-base's width, {name}: memory, CPU time",
                f"{megabytes(call['call_bytes'])}, {call['cpu_seconds']:.0f} s",
                "blocks: a quarter of the whole's memory, no more time",
            ]
        )
    return rows


def _todays_models(result: dict[str, Any]) -> list[list[str]]:
    models = result["models"].values()
    int8 = [model["int8"] for model in models if model["int8"]["verdict"] != "rejected"]
    largest = max(model["fp32"]["max_difference"] for model in models)
    worst = max(found["mean_distance"] for found in int8)
    deployed = f"{len(models)} tiny models of today's families, deployed at `strict`"
    return [
        [f"{deployed} and served in fp32: max |Δ| to their library", f"{largest:.1e}", "≤ 1e-5"],
        [f"{len(int8)} of them served in INT8: mean 1−cos to their library, of the worst", f"{worst:.1e}", "≤ 1.2e-3"],
    ]


def _in_process(result: dict[str, Any]) -> list[list[str]]:
    return [
        [
            f"`trimaran.load(…).encode` of {name}, time over the server's own function",
            f"{row['public_over_bare']:.3f}",
            "≤ 1.03",
        ]
        for name, row in result["rows"].items()
    ]


def _start(result: dict[str, Any]) -> list[list[str]]:
    return [["`trimaran serve` to the first correct answer", f"{result['median_s']:.2f} s", "≤ 3 s"]]


def _recovery(result: dict[str, Any]) -> list[list[str]]:
    one_stub, both, server, stopped = FAULTS
    lost = sum(number for row in _of(result, one_stub) for status, number in row["statuses"].items() if status != "200")
    wanted_s = {both: 2, server: 2, stopped: 35}
    rows = [
        [f"{one_stub} under load: requests without an answer", f"{lost}", "0"],
        [f"{one_stub} under load: longest request", f"{result['longest_s'][one_stub]:.2f} s", "≤ 1 s"],
    ]
    return rows + [
        [f"{fault} under load, to the next right answer", f"{median_s:.2f} s", f"≤ {wanted_s[fault]} s"]
        for fault, median_s in result["median_back_s"].items()
        if fault in wanted_s
    ]


def _of(result: dict[str, Any], fault: str) -> list[dict[str, Any]]:
    return [row for row in result["faults"] if row["fault"] == fault]


def _soak(result: dict[str, Any]) -> list[list[str]]:
    bad = ", ".join(f"{result[name]}" for name in ("wrong", "lost", "improper"))
    return [
        [f"{result['what']}, at the gateway: wrong, lost, refused improperly", bad, "0, 0, 0"],
        ["its memory, the gateway's", f"{100 * result['gateway_memory']['growth']:+.1f} %", "≤ +5 %"],
    ]


def _serving(result: dict[str, Any]) -> list[list[str]]:
    callers, requests = result["callers"], result["memory"][-1][0]
    share = f"{result['share_of_in_process']:.0%}"
    return [
        ["one caller over gRPC, p50 above in process", f"{result['added_p50_ms']:.2f} ms", "≤ 1.2 ms"],
        [f"{callers} callers, answers beside {callers} texts a call in process", share, "≥ 85 %"],
        [f"the server's memory over {requests:,} requests", f"{100 * result['memory_growth']:+.1f} %", "≤ +2 %"],
    ]


def _overload(result: dict[str, Any]) -> list[list[str]]:
    answered = result["statuses"]["200"]
    refused = sum(number for status, number in result["statuses"].items() if status != "200")
    at_triton = result["target"] == "triton"
    where = f"{result['what']}, at {'Triton' if at_triton else 'the gateway'}"
    # Engines keep the memory of their largest call, and still meet larger ones in the first two minutes.
    is_too_short = at_triton and result["settings"]["seconds"] < 240
    return [
        [f"{where}: answered, refused", f"{answered:,}, {refused:,}", "every one of them"],
        [f"{where}: wrong, lost", f"{result['wrong']}, {result['lost']}", "0, 0"],
        [f"{where}: longest answer", f"{result['latency_s']['max']:.1f} s", f"≤ {result['latency_bound_s']:.1f} s"],
        [
            f"{where}: memory, from the second quarter to the last",
            f"{100 * result['memory']['growth']:+.1f} %",
            "too short to tell" if is_too_short else "≤ +5 %",
        ],
    ]


def _load_tools(result: dict[str, Any]) -> list[list[str]]:
    """Figures of a load tool, and those of our own harness in turns with it."""
    names = {"answers_per_s": "answers a second", "p50_ms": "p50 in ms"}
    return [
        [
            f"{row['tool']}, {count(row['callers'], 'caller')}: {words}, by the tool and by our harness",
            " and ".join(_interval(row[name][side]) for side in ("tool", "ours")),
            "intervals that meet",
        ]
        for row in result["rows"]
        for name, words in names.items()
    ]


def _interval(figure: dict[str, Any]) -> str:
    return f"{number(figure['median'])} ({number(figure['low'])}–{number(figure['high'])})"


OPERATION: dict[str, Callable[[dict[str, Any]], list[list[str]]]] = {
    "deployment*": _deployment,
    "long-memory": _long_text,
    "todays-models": _todays_models,
    "int8-search": search_rows,
    "former-speed": former_rows,
    "cold-start": _start,
    "in-process": _in_process,
    "served": _serving,
    "load-gateway": _overload,
    "load-triton": _overload,
    "load-tools": _load_tools,
    "recovery": _recovery,
    "soak": _soak,
}
BLOCKS: dict[str, Callable[[], str]] = {
    "operation": operation_block,
    "engines": engine_block,
    "base-size": base_block,
    "long-texts": long_block,
    "without-vnni": without_vnni_block,
    "growth": growth_block,
    "levers": levers_block,
    "public-sets": public_sets_block,
}


if __name__ == "__main__":
    print(write_page())
