"""For the first machine with a GPU: runs the tests marked `gpu`, which deploy two models at `strict`, and keeps all.

`make gpu-check` calls it. It writes `benchmarks/results/gpu/`: the reports, the builder's logs and `check.json`. Commit
that folder: it is the first proof that the GPU line works, and it shows how plain TensorRT writes its layers.
"""

from __future__ import annotations

import os
import subprocess
import sys

from experiment import RESULTS, ROOT, finish, options

from trimaran.core.devices import choose_device
from trimaran.core.errors import TrimaranError

FOLDER = RESULTS / "gpu"


def main() -> int:
    arguments = options(__doc__, output=FOLDER / "check.json").parse_args()
    try:
        device = choose_device("cuda")
    except TrimaranError as error:
        sys.exit(str(error))
    FOLDER.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "tests"]
    environment = {**os.environ, "TRIMARAN_GPU_RESULTS": str(FOLDER)}
    code = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
    return finish({"device": str(device), "claims": {"the tests marked gpu pass": code == 0}}, arguments.output)


if __name__ == "__main__":
    raise SystemExit(main())
