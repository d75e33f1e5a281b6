"""Deploys a classifier and holds its report against gates.toml: `python examples/gated_classifier.py ./my-classifier`.

This is what the jobs of `trimaran init ci` do with two commands. It ends with exit code 4 when a gate is broken.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any

import trimaran

GATES = """\
candidate = "chosen"
unmeasured = "accepted"   # a shared runner may be too busy to measure speed

[quality]
label_agreement = 0.99
"""


def deploy_and_gate(model: str | Path, folder: Path, **settings: Any) -> int:
    """The exit code of `trimaran report gate`: 0 when every gate holds, 4 when one is broken."""
    report = folder / "report"
    trimaran.deploy(model, output=folder / "model_repository", report=report, **settings)
    gates = folder / "gates.toml"
    if not gates.exists():
        gates.write_text(GATES, encoding="utf-8")
    command = [sys.executable, "-m", "trimaran", "report", "gate", str(report), str(gates)]
    return subprocess.run([*command, "--junit", str(folder / "gates.xml")], check=False).returncode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="a folder with a trained classifier")
    parser.add_argument("--folder", type=Path, default=Path())
    arguments = parser.parse_args()
    sys.exit(deploy_and_gate(arguments.model, arguments.folder, show_progress=True))


if __name__ == "__main__":
    main()
