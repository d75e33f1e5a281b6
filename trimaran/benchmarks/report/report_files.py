"""A report on disk: every format written whole or not at all, and read back with a sentence when damaged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError as SchemaError

from trimaran.benchmarks.report.junit import render_junit
from trimaran.benchmarks.report.render_csv import render_csv
from trimaran.benchmarks.report.render_html import render_html
from trimaran.benchmarks.report.render_markdown import render_markdown
from trimaran.benchmarks.report.report import SCHEMA, Report, report_from_data
from trimaran.benchmarks.report.step_summary import add_to_step_summary
from trimaran.core.errors import IntegrityError, TrimaranError, UnavailableError, UsageError
from trimaran.core.store import write_atomically

FORMATS: dict[str, Callable[[Report], str]] = {
    "report.json": Report.to_json,
    "report.md": render_markdown,
    "report.html": render_html,
    "report.csv": render_csv,
    "report.xml": render_junit,
}

_AGAIN = "It was cut or edited: run the command that wrote it again."


def write_reports(report: Report, folder: Path) -> dict[str, Path]:
    """Writes every format into the folder; returns the paths by file ending (`json`, `md`, `html`, `csv`, `xml`).

    Where a CI step shows a summary, the Markdown goes there too.
    """
    contents = {name: render(report) for name, render in FORMATS.items()}
    try:
        for name, content in contents.items():
            write_atomically(folder / name, content)
    except OSError as error:
        raise UnavailableError(
            f"The report cannot be written to {folder}: {error.strerror}.",
            hint="Choose another folder with --report.",
        ) from error
    add_to_step_summary(contents["report.md"])
    return {Path(name).suffix.lstrip("."): folder / name for name in FORMATS}


def read_report(path: Path) -> Report:
    """A report.json, or the folder that holds one."""
    path = path / "report.json" if path.is_dir() else path
    if not path.is_file():
        raise UsageError(f"There is no report at {path}.", hint="`trimaran deploy` and `trimaran bench` write one.")
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(data, dict) or "schema" not in data:
            raise IntegrityError(f"{path} is not a trimaran report: it has no schema number.", path=str(path))
        if isinstance(data["schema"], int) and data["schema"] > SCHEMA:
            raise IntegrityError(
                f"{path} has report schema {data['schema']}; this version of trimaran reads schemas 1 to {SCHEMA}.",
                hint="Read it with the version of trimaran that wrote it, or a newer one.",
                path=str(path),
            )
        return report_from_data(data)
    except SchemaError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise IntegrityError(
            f"{path} is a damaged report: {where or 'the whole'}: {first['msg']}.", hint=_AGAIN, path=str(path)
        ) from error
    except TrimaranError as error:
        if isinstance(error, IntegrityError):
            raise
        raise IntegrityError(f"{path} is a damaged report: {error.message}", hint=_AGAIN, path=str(path)) from error
    except ValueError as error:
        raise IntegrityError(f"{path} is a damaged report: {error}.", hint=_AGAIN, path=str(path)) from error
