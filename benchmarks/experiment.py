"""How every script here runs, keeps and shows a result: options, claims, watched commands, and generated pages."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trimaran.benchmarks.measure.quiet import busy_words
from trimaran.benchmarks.measure.runner import Measured
from trimaran.benchmarks.report.markdown import markdown_line, markdown_table
from trimaran.benchmarks.report.report import Report
from trimaran.benchmarks.report.report_files import read_report
from trimaran.core.environment import capture
from trimaran.core.store import write_atomically
from trimaran.serving.triton.processes import memory_bytes, proportional_bytes

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
# How results are told apart that depend on what computes products of INT8 numbers (`products_by`).
INSTRUCTIONS = {"vnni": "with VNNI", "without-vnni": "without VNNI (AVX2, 7-bit weights)"}
# What a result says whose engines had no limit of instructions.
EVERY_INSTRUCTION = "all that run here"
# A part of a page that is made from results. Tests check that it is current.
BLOCK = re.compile(r"(<!-- begin (?P<name>[a-z-]+): made by [^\n]+ -->\n).*?(<!-- end -->)", re.DOTALL)


def options(
    doc: str | None, *, served: bool = False, keeps: bool = True, output: Path | None = None
) -> argparse.ArgumentParser:
    """The parser of a script. One that asks a served model takes its repository and name; most keep one result."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    if served:
        parser.add_argument("repository", type=Path)
        parser.add_argument("model", help="an embedding model of the repository")
    if keeps:
        parser.add_argument("-o", "--output", type=Path, default=output, help="where the result goes, as JSON")
    return parser


def finish(result: dict[str, Any], output: Path | None, *, hidden: Sequence[str] = ()) -> int:
    """Keeps the result with the machine it was measured on and prints it without the long parts.

    Returns the exit code: 1 when a claim does not hold.
    """
    result = {**result, "load_average": os.getloadavg()[0], "environment": capture().model_dump(mode="json")}
    if output:
        write_atomically(output, json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    print(json.dumps({key: value for key, value in result.items() if key not in ("environment", *hidden)}, indent=1))
    return 0 if all(result.get("claims", {}).values()) else 1


def read_results(pattern: str, folder: Path = RESULTS) -> list[dict[str, Any]]:
    """Every kept result whose file name fits."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob(f"{pattern}.json"))]


def reports_by_instructions(name: str, folder: Path = RESULTS) -> list[tuple[str, Report]]:
    """The committed reports of one name, each with its instruction set in words, the newest first."""
    kept = {words: folder / f"{name}-{products}" for products, words in INSTRUCTIONS.items()}
    reports = [(words, read_report(path)) for words, path in kept.items() if (path / "report.json").is_file()]
    return sorted(reports, key=lambda kept: kept[1].created, reverse=True)


def undisturbed(measured: Measured) -> Measured:
    """Ends the script where other work disturbed the race: nothing measured on a busy machine becomes a result."""
    if measured.busy:
        sys.exit(f"Not measured: {busy_words(measured.others_share, measured.delayed)}; run again.")
    return measured


def minutes(begun_s: float) -> None:
    print(f"All of it took {(time.monotonic() - begun_s) / 60:.1f} min.", file=sys.stderr)


def distance(vector: Any, expected: Any) -> float:
    """1 − cosine; infinite where the shapes differ."""
    vector, expected = np.asarray(vector), np.asarray(expected)
    if vector.shape != expected.shape:
        return float("inf")
    return float(1 - vector @ expected / np.linalg.norm(vector) / np.linalg.norm(expected))


@dataclass(frozen=True)
class WatchedCommand:
    """How one run of a command went."""

    exit_code: int
    stdout: str
    stderr: str
    seconds: float
    cpu_seconds: float
    # The largest sum over its processes, shared pages counted once, and when it was seen.
    peak_bytes: int
    peak_after_s: float

    @property
    def answer(self) -> dict[str, Any]:
        """What the command printed as JSON. Ends the script when it failed."""
        if self.exit_code:
            sys.exit(f"{self.stderr}\nThe command ended with exit code {self.exit_code}.")
        return dict(json.loads(self.stdout))


def watched(*arguments: str, every_s: float = 0.2, environment: Mapping[str, str] | None = None) -> WatchedCommand:
    """Runs `trimaran` with these arguments and watches the memory of all its processes."""
    begun_s, cpu_s = time.perf_counter(), _children_cpu_s()
    samples: list[tuple[int, float]] = [(0, 0.0)]
    command = [sys.executable, "-m", "trimaran", *arguments]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})}
    )
    while True:
        samples.append((summed_pss(process.pid), time.perf_counter() - begun_s))
        with contextlib.suppress(subprocess.TimeoutExpired):
            stdout, stderr = process.communicate(timeout=every_s)
            break
    peak, moment_s = max(samples)
    return WatchedCommand(
        process.returncode,
        stdout,
        stderr,
        time.perf_counter() - begun_s,
        _children_cpu_s() - cpu_s,
        peak,
        moment_s,
    )


def summed_pss(root: int) -> int:
    """Proportional memory of a process and of all below it; pages that they share count once."""
    return proportional_bytes(root) + memory_bytes(root)


def rendered(page: str, blocks: Mapping[str, Callable[[], str]]) -> str:
    """The page with every generated block made anew."""
    return BLOCK.sub(lambda block: f"{block[1]}{blocks[block['name']]()}\n{block[3]}", page)


def by_hand(page: str) -> str:
    """A page without its generated blocks."""
    return BLOCK.sub("", page)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """A Markdown table whose first `left` columns are text and whose others are numbers."""
    return "\n".join(markdown_table(heads, rows, left=left))


def plain_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table without alignment."""
    return "\n".join([markdown_line(heads), f"|{'---|' * len(heads)}", *map(markdown_line, rows)])


def _children_cpu_s() -> float:
    used = os.times()
    return used.children_user + used.children_system
