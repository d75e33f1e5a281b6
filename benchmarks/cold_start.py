"""From nothing to the first correct answer: how long a fresh `trimaran serve` takes, process start included.

    python benchmarks/cold_start.py model_repository minilm -o benchmarks/results/cold-start.json

Each start is a new process with its own home. The clock runs from before the process exists until an answer over HTTP
is correct: the one of the golden bundle, or without one that of a server started before. Exit 1 beyond the limit.
"""

from __future__ import annotations

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
from experiment import distance, finish, options

from trimaran.serving.triton.golden_check import golden_of
from trimaran.serving.triton.ports import choose
from trimaran.serving.triton.server import launch

TEXT = "The harbour was quiet at dawn."
# Of 1 − cosine to eager PyTorch's answer: any other text is far beyond it, every fidelity level far below.
LARGEST_DISTANCE = 0.05
_PATIENCE_S = 120.0


def correct_answer(repository: Path, model: str) -> tuple[str, np.ndarray]:
    """A text and its vector: from the bundle that travels with the model, or asked of a server before."""
    golden = golden_of(repository, model)
    if golden is not None:
        return str(golden.rows[0]["TEXT"]), golden.tensors["EMBEDDING"][0]
    with launch(repository) as server:
        vector = ask(server.ports.http, model, TEXT)
    assert vector is not None, "the server did not answer"
    return TEXT, vector


def ask(port: int, model: str, text: str) -> np.ndarray | None:
    """The vector, or None while there is no server that answers with one."""
    body = {"inputs": [{"name": "TEXT", "shape": [1, 1], "datatype": "BYTES", "data": [text]}]}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("POST", f"/v2/models/{model}/infer", json.dumps(body), {"Connection": "close"})
        response = connection.getresponse()
        answer = json.loads(response.read())
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
    return np.asarray(answer["outputs"][0]["data"], np.float32) if response.status == 200 else None


def one_start(repository: Path, model: str, text: str, expected: np.ndarray, home: str) -> dict[str, Any]:
    """Seconds to the first answer and to the command's own announcement, and the answer's distance."""
    ports = choose(http=None, grpc=None, metrics=None)
    flags = [part for kind, port in ports._asdict().items() for part in (f"--{kind}-port", str(port))]
    command = [sys.executable, "-m", "trimaran", "serve", str(repository), *flags, "--json"]
    begun_s = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={**os.environ, "TRIMARAN_HOME": home}
    )
    try:
        vector = None
        while vector is None and time.perf_counter() - begun_s < _PATIENCE_S:
            vector = ask(ports[0], model, text)
            if vector is None:
                time.sleep(0.01)
        answered_s = time.perf_counter() - begun_s
        assert vector is not None and process.stdout is not None, "no answer in time"
        process.stdout.readline()
        announced_s = time.perf_counter() - begun_s
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return {"first_answer_s": answered_s, "announced_s": announced_s, "distance": distance(vector, expected)}


def main() -> int:
    parser = options(__doc__, served=True)
    parser.add_argument("--starts", type=int, default=7)
    parser.add_argument("--limit", type=float, default=3.0, help="seconds that the median start may take")
    asked = parser.parse_args()
    text, expected = correct_answer(asked.repository, asked.model)
    with tempfile.TemporaryDirectory() as home:
        samples = [one_start(asked.repository, asked.model, text, expected, home) for _ in range(max(1, asked.starts))]
    times = [sample["first_answer_s"] for sample in samples]
    result = {
        "schema": 1,
        "what": "seconds from the start of `trimaran serve` to the first correct answer over HTTP",
        "model": asked.model,
        "limit_s": asked.limit,
        "median_s": statistics.median(times),
        "fastest_s": min(times),
        "slowest_s": max(times),
        "samples": samples,
        "claims": {
            "every first answer correct": all(sample["distance"] <= LARGEST_DISTANCE for sample in samples),
            "median within the limit": statistics.median(times) <= asked.limit,
        },
    }
    return finish(result, asked.output, hidden=("samples",))


if __name__ == "__main__":
    sys.exit(main())
