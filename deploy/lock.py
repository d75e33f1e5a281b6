"""Writes the requirements of the images: every package with its dependencies, its version and the hashes of its wheels.

    python deploy/lock.py

The names are in requirements-*.in, the versions in constraints.txt. pip says which wheels the images would take, on
both kinds of CPU. A package that constraints.txt does not name is refused: the result depends on these files alone.
`pip install --require-hashes` then takes these very wheels, or none.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

DEPLOY = Path(__file__).parent
CONSTRAINTS = DEPLOY.parent / "constraints.txt"
# Of the images: Debian 12 has glibc 2.36, and Triton's Ubuntu has a newer one.
PYTHON, NEWEST_GLIBC = "3.12", 36
MACHINES = ("x86_64", "aarch64")
_OLD_NAMES = ("manylinux2014", "manylinux2010", "manylinux1", "manylinux_2_12", "manylinux_2_5")


def platforms(machine: str) -> Iterator[str]:
    """Every kind of wheel that runs there. pip does not derive the older ones itself."""
    yield from (f"manylinux_2_{minor}_{machine}" for minor in range(NEWEST_GLIBC, 16, -1))
    yield from (f"{name}_{machine}" for name in _OLD_NAMES)


def wheels(names: Path, machine: str) -> dict[str, str]:
    """The SHA-256 of each wheel by `name==version`."""
    command = [
        *(sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-"),
        *("--only-binary", ":all:", "--python-version", PYTHON, "--target", str(DEPLOY / "nowhere")),
        *(word for platform in platforms(machine) for word in ("--platform", platform)),
        *("-c", str(CONSTRAINTS), "-r", str(names)),
    ]
    report = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    return {
        canonical(f"{entry['metadata']['name']}=={entry['metadata']['version']}"): entry["download_info"][
            "archive_info"
        ]["hashes"]["sha256"]
        for entry in report["install"]
    }


def canonical(pin: str) -> str:
    """A package has one spelling: lower case, with hyphens."""
    name, _, version = pin.strip().partition("==")
    return f"{re.sub(r'[-_.]+', '-', name).lower()}=={version}"


def locked(names: Path) -> str:
    hashes: dict[str, set[str]] = defaultdict(set)
    for machine in MACHINES:
        for pin, sha256 in wheels(names, machine).items():
            hashes[pin].add(sha256)
    known = {canonical(line) for line in CONSTRAINTS.read_text(encoding="utf-8").splitlines()}
    if floating := sorted(hashes.keys() - known):
        sys.exit(f"{names.name} needs {', '.join(floating)}, which constraints.txt does not name. Add them there.")
    lines = [f"# Made by `python deploy/lock.py` from {names.name} and constraints.txt."]
    for pin in sorted(hashes):
        lines.append(" \\\n".join([pin, *(f"    --hash=sha256:{sha256}" for sha256 in sorted(hashes[pin]))]))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for names in sorted(DEPLOY.glob("requirements-*.in")):
        names.with_suffix(".txt").write_text(locked(names), encoding="utf-8")
