"""The facts of scenarios that the HTML report shows: shapes, load, where the time goes, and every final number."""

from __future__ import annotations

from typing import Any

from trimaran.benchmarks.report.plots_scenarios import cell_medians, heat_map, load_curves, rate_curve, time_bars
from trimaran.benchmarks.report.report import Report
from trimaran.benchmarks.report.wording import figure_words, level_words, milliseconds
from trimaran.benchmarks.scenarios.finals import READINGS, ScenarioReading, figures_of, holds, throughput
from trimaran.benchmarks.scenarios.results import ClosedLoop, OpenLoop, ScenarioResult, ShapeGrid
from trimaran.benchmarks.scenarios.time_parts import PARTS, time_splits
from trimaran.judging.stats import percentile


def scenario_facts(report: Report) -> dict[str, Any]:
    return {
        **_shape_facts(report),
        **_load_facts(report),
        **_time_facts(report),
        "finals": _finals(report),
        "cut_count": sum(bool(result.cut) for result in report.scenarios),
    }


def _shape_facts(report: Report) -> dict[str, Any]:
    """Grids, the chosen candidate's first; eager's own is the base that the others are drawn against."""
    grids = [result for result in report.scenarios if isinstance(result, ShapeGrid) and cell_medians(result)]
    base = next((grid for grid in grids if grid.candidate == report.reference.name), None)
    others = [grid for grid in grids if grid is not base]
    drawn = sorted(others, key=lambda grid: grid.candidate != report.verdict.chosen) or grids
    return {
        "grids": drawn,
        "base_grid": base,
        "grid_figure": "speed-up over eager PyTorch" if base and base not in drawn else "rows per second",
        "shape_rows": [
            [grid.candidate, str(shape), milliseconds(time_ns), f"{shape.batch * 1e9 / time_ns:.0f}"]
            for grid in grids
            for shape, time_ns in cell_medians(grid).items()
        ],
        "heat_map": heat_map,
    }


def _load_facts(report: Report) -> dict[str, Any]:
    closed = [result for result in report.scenarios if isinstance(result, ClosedLoop)]
    opened = [result for result in report.scenarios if isinstance(result, OpenLoop)]
    return {
        "load_plots": [
            *((f"{r.candidate}, {_over(r)}", plot) for r in closed if (plot := load_curves(r))),
            *((f"{r.candidate}, {_over(r)}: arrivals", plot) for r in opened if (plot := rate_curve(r))),
        ],
        "closed_rows": [
            [
                result.candidate,
                _over(result),
                str(point.concurrency),
                f"{throughput(point):.1f}",
                *_percentiles_ms(point.latencies_ns),
                str(len(point.latencies_ns)),
                str(point.failures),
            ]
            for result in closed
            for point in result.points
            if point.latencies_ns
        ],
        "open_rows": [
            [
                result.candidate,
                _over(result),
                f"{point.rate_per_s:.4g}",
                *_percentiles_ms(point.latencies_ns),
                "kept" if holds(point, result) else "broken",
                str(point.failures),
            ]
            for result in opened
            for point in result.points
            if point.latencies_ns
        ],
    }


def _time_facts(report: Report) -> dict[str, Any]:
    splits = time_splits(report.scenarios)
    names = [name for name in PARTS if any(name in split.by_name for split in splits)]
    return {
        "splits": splits,
        "part_meanings": [(f"part part-{name}", f"{name}: {PARTS[name]}") for name in names],
        "part_heads": ["candidate", "over", *(f"{name} ms" for name in names), "all ms"],
        "part_rows": [
            [
                split.candidate,
                split.wire or "in process",
                *(f"{split.by_name[name] / 1e6:.3f}" if name in split.by_name else "–" for name in names),
                f"{split.total_ns / 1e6:.3g}",
            ]
            for split in splits
        ],
        "time_bars": time_bars,
    }


def _finals(report: Report) -> list[tuple[ScenarioReading, list[list[str]]]]:
    """By scenario; one that was cut says why and keeps what it found."""
    return [
        (reading, rows)
        for name, reading in READINGS.items()
        if (rows := [_final_cells(result) for result in report.scenarios if result.scenario == name])
    ]


def _final_cells(result: ScenarioResult) -> list[str]:
    words = list(map(figure_words, figures_of(result)))
    remark = result.cut or getattr(result, "unavailable", None) or ""
    return [result.candidate, level_words(result), words[0] if words else "–", "; ".join(words[1:]), remark]


def _percentiles_ms(latencies_ns: tuple[int, ...]) -> list[str]:
    return [milliseconds(percentile(latencies_ns, share)) for share in (50, 90, 99)]


def _over(result: ClosedLoop | OpenLoop) -> str:
    return result.wire or "in process"
