"""A report on disk: the one place that writes its formats and reads report.json back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import ValidationError as SchemaError

from trimaran.benchmarks.report.junit import render_junit
from trimaran.benchmarks.report.older_reports import retold
from trimaran.benchmarks.report.render_csv import render_csv
from trimaran.benchmarks.report.render_html import render_html
from trimaran.benchmarks.report.render_markdown import render_markdown
from trimaran.benchmarks.report.report import EAGER, SCHEMA, Report
from trimaran.benchmarks.report.step_summary import add_to_step_summary
from trimaran.core.errors import IntegrityError, TrimaranError, UnavailableError, UsageError
from trimaran.core.store import write_atomically


def _in_its_words(render: Callable[[Report], str]) -> Callable[[Report], str]:
    """The sentences of the formats say eager PyTorch; a model without trained weights has another reference."""
    return lambda report: render(report).replace(EAGER, report.reference_words)


FORMATS: dict[str, Callable[[Report], str]] = {
    "report.json": Report.to_json,
    "report.md": _in_its_words(render_markdown),
    "report.html": _in_its_words(render_html),
    "report.csv": _in_its_words(render_csv),
    "report.xml": _in_its_words(render_junit),
}

_AGAIN = "It was cut or edited. Run the command that wrote it again."


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
    except IntegrityError:
        raise
    except (ValueError, TrimaranError) as error:
        message = f"{path} is a damaged report: {_fault(error)}"
        raise IntegrityError(message, hint=_AGAIN, path=str(path)) from error


def read_runs(path: Path) -> tuple[Report, ...]:
    """One report, or every report in the sub-folders of a folder that holds none itself, the oldest first."""
    folders = sorted(file.parent for file in path.glob("*/report.json")) if path.is_dir() else []
    if not folders or (path / "report.json").is_file():
        return (read_report(path),)
    return tuple(sorted(map(read_report, folders), key=lambda report: report.created))


def _fault(error: Exception) -> str:
    """A sentence; for pydantic's error the field and what is wrong with it."""
    if isinstance(error, SchemaError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc'])) or 'the whole'}: {first['msg']}."
    return error.message if isinstance(error, TrimaranError) else f"{error}."


def report_from_data(data: dict[str, Any]) -> Report:
    """A report of this schema or an older one. Raises ValueError for a newer one, or pydantic's error."""
    version = data.get("schema")
    if not isinstance(version, int) or not 1 <= version <= SCHEMA:
        raise ValueError(f"report schema {version}; this version of trimaran reads schemas 1 to {SCHEMA}")
    # Schema 2 only adds fields, each of which has a default that says "not measured".
    report = Report.model_validate({**data, "schema": SCHEMA})
    return report if "speed_figures" in data else retold(report)
