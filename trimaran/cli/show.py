"""Commands that look: an artifact's lineage and proofs, what this machine can do."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from trimaran.cli import app
from trimaran.cli.deploy import JsonOption, StoreOption, emit, shelf_at


@app.command(rich_help_panel="Look")
def show(
    artifact: Annotated[str, typer.Argument(help="An artifact: folder, name in the store, or digest.")],
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show an artifact's lineage, what was proven of it with observed and limit, and its files."""
    shelf = shelf_at(store)
    line = shelf.lineage(shelf.open(artifact))
    found = line[0]
    if as_json:
        emit(
            {
                **found.model_dump(mode="json", by_alias=True),
                "directory": str(found.directory),
                "digest": found.digest,
                "lineage": [ancestor.directory.name for ancestor in line],
            }
        )
        return
    facts = {
        "artifact": found.directory,
        "digest": found.digest,
        "model": f"{found.name} ({found.family}, {found.task})",
        "runs on": f"{found.backend}, {found.format}, {found.precision}",
        "shapes": f"batch {found.profile.batch}, sequence {found.profile.sequence}",
        "lineage": " <- ".join(ancestor.directory.name for ancestor in line),
    }
    for key, value in facts.items():
        typer.echo(f"{key:10} {value}")
    for check in found.checks:
        typer.echo(f"proven     {check}")
    for file in found.files:
        typer.echo(f"file       {file.name:24} {file.size_bytes:>12,} bytes  sha256 {file.sha256[:16]}…")


@app.command(rich_help_panel="Look")
def doctor(as_json: JsonOption = False) -> None:
    """Say what this machine can do: each backend and why not, and the instruction sets that really execute."""
    from trimaran.core.backends import BACKENDS
    from trimaran.core.environment import capture
    from trimaran.core.instructions import probe
    from trimaran.quantize.candidates import CANDIDATES

    reasons = {row.name: (row.available(), row.hint()) for row in BACKENDS.values()}
    reasons["triton"] = _triton_reason()
    probed = probe()
    environment = capture()
    if as_json:
        emit(
            {
                "environment": environment.model_dump(mode="json"),
                "backends": {
                    name: {"available": reason is None, "reason": reason, "hint": hint if reason else None}
                    for name, (reason, hint) in reasons.items()
                },
                "instructions": [
                    {"name": row.name, "advertised": row.advertised, "executes": row.executes, "detail": row.detail}
                    for row in probed
                ],
                "candidates": {row.name: row.describe for row in CANDIDATES.values()},
            }
        )
        return
    _print_doctor(environment, reasons, probed)


def _triton_reason() -> tuple[str | None, str]:
    from trimaran.core.errors import UnavailableError
    from trimaran.serving.triton.installation import find

    try:
        find()
    except UnavailableError as error:
        return error.message, error.hint
    return None, ""


def _print_doctor(environment: Any, reasons: dict[str, tuple[str | None, str]], probed: Any) -> None:
    from rich.console import Console
    from rich.markup import escape

    from trimaran.quantize.candidates import CANDIDATES

    console = Console(highlight=False, soft_wrap=True)
    memory = environment.memory_bytes / 2**30
    console.print(f"[bold]{environment.cpu}[/bold], {environment.cores} cores, {memory:.0f} GiB, {environment.system}")
    console.print(f"Python {environment.python}, GPU: {environment.gpu or 'none'}")
    console.print("\n[bold]Backends[/bold]")
    for name, (reason, hint) in reasons.items():
        state = "[green]✓ ready[/green]"
        if reason is not None:
            state = f"[yellow]✗ {escape(reason)}[/yellow]\n    → {escape(hint)}"
        console.print(f"  {name:21} {state}")
    console.print("\n[bold]Instruction sets[/bold] (executed in a child process, not read from flags)")
    for row in probed:
        state = "[green]✓ executes[/green]" if row.executes else f"✗ {row.detail}"
        if row.trap:
            state = f"[red]✗ advertised, but dies of {row.detail}: runs under ONEDNN_MAX_CPU_ISA[/red]"
        console.print(f"  {row.name:21} {state}  [dim]{row.what}[/dim]")
    console.print("\n[bold]Candidates[/bold]")
    for candidate in CANDIDATES.values():
        asked = "" if candidate.default else " [dim](when asked for)[/dim]"
        console.print(f"  {candidate.name:26} {candidate.describe}{asked}")
    console.print("\n[bold]Libraries[/bold]")
    console.print("  " + ", ".join(f"{name} {version}" for name, version in environment.libraries.items()))
