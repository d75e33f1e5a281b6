"""`trimaran report`: render a finished report in another format, compare several, check one against gates."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from trimaran.cli.app import app
from trimaran.cli.options import JsonOption
from trimaran.cli.output import emit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from trimaran.benchmarks.report.gates import GateRow


class _RenderByDefault(TyperGroup):
    """`trimaran report PATH` is short for `trimaran report render PATH`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        asks_for_help = {"-h", "--help"} & set(args[:1])
        if args and args[0] not in self.commands and not asks_for_help:
            args = ["render", *args]
        return super().parse_args(ctx, args)


reports = typer.Typer(
    cls=_RenderByDefault,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="""Work with finished reports. `trimaran report PATH` renders one; `compare` says what changed between
several, only where intervals separate; `gate` holds one against limits and ends with exit code 4 when it fails.""",
)
app.add_typer(reports, name="report", rich_help_panel="Look")


ReportArgument = Annotated[Path, typer.Argument(help="A report.json, or the folder that holds one.")]
OutputOption = Annotated[
    Path | None, typer.Option("-o", "--output", dir_okay=False, help="File to write; stdout by default.")
]


@reports.command()
def render(
    path: ReportArgument,
    format_: Annotated[
        Literal["md", "html", "json", "csv", "junit"], typer.Option("--format", help="What to render.")
    ] = "md",
    output: OutputOption = None,
) -> None:
    """Render a report from its JSON; every number is recomputed from the raw samples.

    Example: `trimaran report render reports/minilm --format html -o report.html`, or without `render`
    """
    from trimaran.benchmarks.report.report_files import FORMATS, read_report

    ending = {"junit": "xml"}.get(format_, format_)
    _deliver(FORMATS[f"report.{ending}"](read_report(path)), output)


@reports.command()
def compare(
    old: ReportArgument,
    new: Annotated[list[Path], typer.Argument(help="One or more later reports, each compared with OLD.")],
    unlike: Annotated[
        bool, typer.Option("--unlike", help="Compare unlike machines or versions too, and say which field differs.")
    ] = False,
    everything: Annotated[bool, typer.Option("--all", help="Show also what did not change.")] = False,
    format_: Annotated[Literal["text", "md", "json"], typer.Option("--format", help="How to print it.")] = "text",
    output: OutputOption = None,
) -> None:
    """Say what got faster, slower or worse, only where intervals separate.

    A candidate's time must differ by the clock *and* relative to the eager PyTorch measured beside it. So a machine
    that was slower that day is not taken for a slower model. A folder of folders with a report each counts as several
    runs. With three or more runs a side, the intervals include how much runs differ from one another.

    Reports of two models for the same task, such as a teacher and its student, stand side by side: speed, size,
    fidelity, and the metric of labelled data.

    Example: `trimaran report compare benchmarks/results/minilm-strict-vnni reports/minilm`
    """
    import json

    from trimaran.benchmarks.report.compare import compare as compare_two
    from trimaran.benchmarks.report.render_compare import (
        comparison_json,
        comparison_markdown,
        comparison_sentence,
        comparison_table,
        remarks,
        shown,
    )
    from trimaran.benchmarks.report.report_files import read_runs
    from trimaran.benchmarks.report.step_summary import add_to_step_summary

    before = read_runs(old)
    comparisons = [compare_two(before, read_runs(path), allow_unlike=unlike, two_models=True) for path in new]
    markdown = comparison_markdown(comparisons, everything=everything)
    add_to_step_summary(markdown)
    match format_:
        case "json":
            _deliver(
                json.dumps({"comparisons": [comparison_json(comparison) for comparison in comparisons]}) + "\n", output
            )
        case "md":
            _deliver(markdown, output)
        case "text":
            parts: list[Table | str] = []
            for path, comparison in zip(new, comparisons, strict=True):
                parts.append(f"{path} against {old}: {comparison_sentence(comparison)}")
                if shown(comparison, everything=everything):
                    parts.append(comparison_table(comparison, everything=everything))
                parts += [f"  {remark}" for remark in remarks(comparison)]
            _deliver(_as_text(parts, to_file=output is not None), output)


@reports.command()
def gate(
    path: ReportArgument,
    gates: Annotated[Path, typer.Argument(help="TOML file with the limits; `trimaran init ci github` writes one.")],
    junit: Annotated[Path | None, typer.Option("--junit", help="Write the rows as JUnit XML, failed or not.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Hold a report against limits: speed-up, latency, quality, memory, size, scenarios, regression.

    Ends with exit code 4 and the failing rows when one is broken. A figure that was not measured fails its limit. In a
    folder of several runs, the last one is checked against the limits, and all of them against the baseline.

    Example: `trimaran report gate reports/minilm gates.toml --junit gates.xml`
    """
    from trimaran.benchmarks.report.gates import hold, read_gates
    from trimaran.benchmarks.report.junit import junit_of_gates
    from trimaran.benchmarks.report.render_gates import gates_markdown, gates_table
    from trimaran.benchmarks.report.report_files import read_runs
    from trimaran.benchmarks.report.step_summary import add_to_step_summary
    from trimaran.core.errors import ValidationError
    from trimaran.core.store import write_atomically

    runs = read_runs(path)
    report = runs[-1]
    rows = hold(runs, read_gates(gates), folder=gates.absolute().parent)
    if junit:
        write_atomically(junit.absolute(), junit_of_gates(report, rows))
    add_to_step_summary(gates_markdown(report, rows))
    if not as_json:
        typer.echo(_as_text([gates_table(rows)], to_file=False), nl=False)
    failed = [row for row in rows if not row.holds]
    if failed:
        raise ValidationError(
            f"{len(failed)} of {len(rows)} gates failed: {'; '.join(map(_failing, failed))}.",
            rows=[row._asdict() for row in rows],
        )
    if as_json:
        emit({"gates": [row._asdict() for row in rows], "failed": 0})


def _failing(row: GateRow) -> str:
    return f"{row.gate} of {row.candidate} is {row.observed}, wanted {row.limit}"


def _deliver(text: str, output: Path | None) -> None:
    if output is None:
        sys.stdout.write(text)
        return
    from trimaran.core.store import write_atomically

    write_atomically(output.absolute(), text)
    typer.echo(str(output), err=True)


def _as_text(parts: Sequence[Table | str], *, to_file: bool) -> str:
    """As a terminal shows it; plain where it goes to a file or a pipe."""
    from rich.console import Console

    plain = to_file or not sys.stdout.isatty()
    console = Console(highlight=False, no_color=plain, force_terminal=not plain, width=140 if plain else None)
    with console.capture() as capture:
        for part in parts:
            console.print(part, markup=False, soft_wrap=isinstance(part, str))
    return capture.get()
