"""`trimaran doctor`: what this machine can do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from trimaran.cli.app import app
from trimaran.cli.options import JsonOption
from trimaran.cli.output import emit

if TYPE_CHECKING:
    from trimaran.pipeline.doctor import Examination


@app.command(rich_help_panel="Look")
def doctor(as_json: JsonOption = False) -> None:
    """Say what this machine can do: which backends run, why others do not, and which instruction sets execute.

    Example: `trimaran doctor --json`
    """
    from trimaran.pipeline.doctor import examine

    examination = examine()
    if as_json:
        emit(examination.facts())
    else:
        _print(examination)


def _print(examination: Examination) -> None:
    from rich.console import Console
    from rich.markup import escape

    from trimaran.quantize.candidates import CANDIDATES

    environment = examination.environment
    console = Console(highlight=False, soft_wrap=True)
    memory = environment.memory_bytes / 2**30
    console.print(f"[bold]{environment.cpu}[/bold], {environment.cores} cores, {memory:.0f} GiB, {environment.system}")
    console.print(f"Python {environment.python}, GPU: {environment.gpu or 'none'}")
    for warning in examination.gpu_warnings:
        console.print(f"[yellow]GPU: {escape(warning)}[/yellow]")
    console.print("\n[bold]Backends[/bold]")
    for name, (reason, hint) in examination.backends.items():
        state = f"[yellow]✗ {escape(reason)}[/yellow]\n    → {escape(hint)}" if reason else "[green]✓ ready[/green]"
        console.print(f"  {name:21} {state}")
    console.print("\n[bold]Instruction sets[/bold] (executed in a child process, not read from flags)")
    for row in examination.instructions:
        state = "[green]✓ executes[/green]" if row.executes else f"✗ {row.detail}"
        if row.trap:
            state = f"[red]✗ advertised, but dies of {row.detail}: runs under ONEDNN_MAX_CPU_ISA[/red]"
        console.print(f"  {row.name:21} {state}  [dim]{row.what}[/dim]")
    console.print("\n[bold]Candidates[/bold]")
    for candidate in CANDIDATES.values():
        console.print(f"  {candidate.name:26} {candidate.describe}[dim]{candidate.competes_when}[/dim]")
    console.print("\n[bold]Libraries[/bold]")
    console.print("  " + ", ".join(f"{name} {version}" for name, version in environment.libraries.items()))


@app.command(rich_help_panel="Look")
def constraints(as_json: JsonOption = False) -> None:
    """Print the file with the versions that were tried together, for `pip install -c`.

    Example: `trimaran constraints`
    """
    from importlib.resources import files

    path = str(files("trimaran.core").joinpath("constraints.txt"))
    if as_json:
        emit({"constraints": path})
    else:
        typer.echo(path)
