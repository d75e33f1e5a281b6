"""`trimaran encode --engine ray` on a cluster of containers: a head and two workers on a bridge network. One worker is
killed in the middle. The vectors must have the same bits as those of the local engine.

    python benchmarks/ray_containers.py ARTIFACT -o benchmarks/results/ray-containers.json      (3 minutes)

The containers run this Python with its packages, mounted read-only: a cluster needs one version on every node.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import experiment
import pods
from pods import Bridge, podman

from trimaran.core.corpus import shipped_texts

ROWS, PART_ROWS = 4000, 100
WORKERS = ("worker-0", "worker-1")


def encode(artifact: Path, root: Path, output: str, *options: str) -> list[str]:
    arguments = ("--input", str(root / "texts.txt"), "--output", str(root / output), "--part-rows", str(PART_ROWS))
    return [sys.executable, "-m", "trimaran", "encode", str(artifact), *arguments, "--threads", "1", *options]


def parts(output: Path) -> dict[str, str]:
    """The SHA-256 of every part."""
    files = sorted((output / "parts").glob("*.parquet"))
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def start(network: Bridge, name: str, artifact: Path, root: Path, *arguments: str) -> None:
    """A node of the cluster with one CPU. It sees the input and the artifact; its own store is inside it."""
    seen = {sys.prefix, sys.base_prefix, str(experiment.ROOT), str(artifact)}
    volumes = [f"--volume={folder}:{folder}:ro" for folder in sorted(seen)]
    variables = {"PYTHONPATH": experiment.ROOT, "TRIMARAN_HOME": "/tmp/home", "RAY_USAGE_STATS_ENABLED": 0}
    given = [f"--env={key}={value}" for key, value in variables.items()]
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--num-cpus=1", "--block", *arguments]
    podman(
        "run", "-d", "--name", network.full(name), "--network", network.name, "--user=0", "--shm-size=1g",
        *volumes, f"--volume={root}:{root}", *given, "--entrypoint", command[0], pods.GATEWAY_IMAGE, *command[1:],
    )  # fmt: skip


def run(network: Bridge, artifact: Path, root: Path) -> dict[str, Any]:
    texts = shipped_texts("judging")
    lines = [" ".join(texts[row % len(texts)].split()) for row in range(ROWS)]
    (root / "texts.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    home = {**os.environ, "TRIMARAN_HOME": str(root / "home")}
    subprocess.run(encode(artifact, root, "local"), env=home, check=True)
    start(network, "head", artifact, root, "--head", "--port=6379", "--include-dashboard=false")
    head = network.address("head")
    for name in WORKERS:
        time.sleep(5)
        start(network, name, artifact, root, f"--address={head}:6379")
    time.sleep(15)
    command = encode(artifact, root, "ray", "--engine", "ray", "--address", "auto")
    receipts = root / "ray" / "receipts"
    with subprocess.Popen(["podman", "exec", network.full("head"), *command]) as driver:
        pods.wait_for(lambda: len(list(receipts.glob("*.json"))) >= 2, "two parts are written", within_s=200)
        finished = len(list(receipts.glob("*.json")))
        podman("kill", network.full(WORKERS[0]))
        code = driver.wait(timeout=600)
    local, ray = parts(root / "local"), parts(root / "ray")
    return {
        "schema": 1,
        "what": "encode on a Ray cluster of three containers, one of two workers killed in the middle",
        "rows": ROWS,
        "parts": len(local),
        "parts_before_the_kill": finished,
        "exit_code": code,
        "claims": {
            "the run ended well": code == 0,
            "killed in the middle": 0 < finished < len(local),
            "the same bits as on one machine": bool(local) and local == ray,
        },
    }


def main() -> int:
    parser = experiment.options(__doc__)
    parser.add_argument("artifact", type=Path, help="the folder of an embedding artifact")
    options = parser.parse_args()
    if reason := pods.why_not():
        sys.exit(reason)
    with tempfile.TemporaryDirectory() as folder, pods.bridge() as network:
        result = run(network, options.artifact.resolve(), Path(folder))
    return experiment.finish(result, options.output)


if __name__ == "__main__":
    sys.exit(main())
