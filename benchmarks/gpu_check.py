"""For the first machine with a GPU: runs the tests marked `gpu`, which deploy two models at `strict`, and keeps all.

`make gpu-check` calls it. It writes `benchmarks/results/gpu/`: the reports, the builder's logs and `check.json`. Commit
that folder: it is the first proof that the GPU line works, and it shows how plain TensorRT writes its layers.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from experiment import RESULTS, ROOT, finish, options

from trimaran.core.devices import choose_device
from trimaran.core.errors import TrimaranError

FOLDER = RESULTS / "gpu"
# The test that deploys each model.
DEPLOYED = {
    "MiniLM": "test_a_model_keeps_the_strict_gates_on_this_gpu[minilm]",
    "the classifier": "test_a_model_keeps_the_strict_gates_on_this_gpu[gender]",
}


def main() -> int:
    arguments = options(__doc__, output=FOLDER / "check.json").parse_args()
    try:
        device = choose_device("cuda")
    except TrimaranError as error:
        sys.exit(str(error))
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="trimaran-gpu-check-") as scratch:
        listing = Path(scratch) / "tests.xml"
        command = [sys.executable, "-m", "pytest", "-m", "gpu", f"--junitxml={listing}", "tests"]
        environment = {**os.environ, "TRIMARAN_GPU_RESULTS": str(FOLDER)}
        code = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
        tests = outcomes(listing)
    claims = {"the tests marked gpu pass": code == 0} | {
        f"{model} was deployed at strict on the GPU": tests.get(name) == "passed" for model, name in DEPLOYED.items()
    }
    return finish({"device": str(device), "tests": tests, "claims": claims}, arguments.output)


def outcomes(listing: Path) -> dict[str, str]:
    """By test: `passed`, `failed`, or why it was skipped. A skipped test proves nothing of this GPU."""
    words = {}
    for case in ElementTree.parse(listing).iter("testcase") if listing.is_file() else ():
        skipped = case.find("skipped")
        failed = case.find("failure") is not None or case.find("error") is not None
        words[case.attrib["name"]] = (
            "failed" if failed else "passed" if skipped is None else f"skipped: {skipped.get('message', '')}"
        )
    return words


if __name__ == "__main__":
    raise SystemExit(main())
