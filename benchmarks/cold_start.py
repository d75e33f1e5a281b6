"""From nothing to the first correct answer: how long a fresh `trimaran serve` takes, process start included.

    python benchmarks/cold_start.py model_repository minilm -o benchmarks/results/cold-start.json

Each start is a new process with its own home. The clock runs from before the process exists until an answer over HTTP
is the one that the golden bundle (or, without one, a server that was started before) gives. Exit 1 beyond the limit.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from trimaran.core.environment import capture
from trimaran.serving.triton.golden_check import golden_of
from trimaran.serving.triton.ports import choose
from trimaran.serving.triton.server import launch

TEXT = "The harbour was quiet at dawn."
# Of 1 − cosine to eager PyTorch's answer: any other text is far beyond it, every fidelity level far below.
LARGEST_DISTANCE = 0.05
_PATIENCE_S = 120.0


def wanted_answer(repository: Path, model: str) -> tuple[str, np.ndarray]:
    """A text and its right vector: from the bundle that travels with the model, or asked of a server before."""
    golden = golden_of(repository, model)
    if golden is not None:
        return str(golden.rows[0]["TEXT"]), golden.tensors["EMBEDDING"][0]
    with launch(repository) as server:
        found = ask(server.ports.http, model, TEXT)
    assert found is not None, "the server did not answer"
    return TEXT, found


def ask(port: int, model: str, text: str) -> np.ndarray | None:
    """The vector, or None while nobody answers with one."""
    body = {"inputs": [{"name": "TEXT", "shape": [1, 1], "datatype": "BYTES", "data": [text]}]}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("POST", f"/v2/models/{model}/infer", json.dumps(body), {"Connection": "close"})
        response = connection.getresponse()
        found = json.loads(response.read())
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
    return np.asarray(found["outputs"][0]["data"], np.float32) if response.status == 200 else None


def distance(found: np.ndarray, wanted: np.ndarray) -> float:
    if found.shape != wanted.shape:
        return float("inf")
    return float(1 - found @ wanted / np.linalg.norm(found) / np.linalg.norm(wanted))


def one_start(repository: Path, model: str, text: str, wanted: np.ndarray, home: str) -> dict[str, Any]:
    """Seconds to the first correct answer, to the command's own word that it serves, and the answer's distance."""
    ports = choose(http=None, grpc=None, metrics=None)
    flags = [part for kind, port in ports._asdict().items() for part in (f"--{kind}-port", str(port))]
    command = [sys.executable, "-m", "trimaran", "serve", str(repository), *flags, "--json"]
    begun = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={**os.environ, "TRIMARAN_HOME": home}
    )
    try:
        found = None
        while found is None and time.perf_counter() - begun < _PATIENCE_S:
            found = ask(ports[0], model, text)
            if found is None:
                time.sleep(0.01)
        answered = time.perf_counter() - begun
        assert found is not None, "no answer in time"
        assert process.stdout is not None
        process.stdout.readline()
        announced = time.perf_counter() - begun
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return {"first_answer_s": answered, "announced_s": announced, "distance": distance(found, wanted)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repository", type=Path)
    parser.add_argument("model", help="an embedding model of the repository")
    parser.add_argument("--starts", type=int, default=7)
    parser.add_argument("--limit", type=float, default=3.0, help="seconds that the median start may take")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    text, wanted = wanted_answer(options.repository, options.model)
    with tempfile.TemporaryDirectory() as home:
        samples = [
            one_start(options.repository, options.model, text, wanted, home) for _ in range(max(1, options.starts))
        ]
    times = [sample["first_answer_s"] for sample in samples]
    result = {
        "schema": 1,
        "what": "seconds from the start of `trimaran serve` to the first correct answer over HTTP",
        "model": options.model,
        "limit_s": options.limit,
        "median_s": statistics.median(times),
        "fastest_s": min(times),
        "slowest_s": max(times),
        "samples": samples,
        "claims": {
            "every first answer correct": all(sample["distance"] <= LARGEST_DISTANCE for sample in samples),
            "median within the limit": statistics.median(times) <= options.limit,
        },
        "load_average": os.getloadavg()[0],
        "environment": capture().model_dump(mode="json"),
    }
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({key: value for key, value in result.items() if key not in ("environment", "samples")}, indent=1))
    return 0 if all(result["claims"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
