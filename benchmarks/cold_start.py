"""From nothing to the first correct answer: how long a fresh `trimaran serve` takes, process start included.

    python benchmarks/cold_start.py model_repository minilm -o benchmarks/results/cold-start.json
    python benchmarks/cold_start.py model_repository minilm --container -o benchmarks/results/cold-start-container.json

Each start is a new process with its own home, or a new container of the CPU image (`make containers` builds it). The
clock runs from before it exists until an answer over HTTP is correct: the one of the golden bundle, or without one that
of a server started before. Exit 1 beyond the limit.
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
import pods
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
        vector = ask("127.0.0.1", server.ports.http, model, TEXT)
    assert vector is not None, "the server did not answer"
    return TEXT, vector


def ask(host: str, port: int, model: str, text: str) -> np.ndarray | None:
    """The vector, or None while there is no server that answers with one."""
    body = {"inputs": [{"name": "TEXT", "shape": [1, 1], "datatype": "BYTES", "data": [text]}]}
    connection = http.client.HTTPConnection(host, port, timeout=10)
    try:
        connection.request("POST", f"/v2/models/{model}/infer", json.dumps(body), {"Connection": "close"})
        response = connection.getresponse()
        answer = json.loads(response.read())
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
    return np.asarray(answer["outputs"][0]["data"], np.float32) if response.status == 200 else None


def first_answer(host: str, port: int, model: str, text: str, begun_s: float) -> np.ndarray:
    while time.perf_counter() - begun_s < _PATIENCE_S:
        vector = ask(host, port, model, text)
        if vector is not None:
            return vector
        time.sleep(0.01)
    raise TimeoutError("no answer in time")


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
        vector = first_answer("127.0.0.1", ports[0], model, text, begun_s)
        answered_s = time.perf_counter() - begun_s
        assert process.stdout is not None
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


def one_container(repository: Path, model: str, text: str, expected: np.ndarray) -> dict[str, Any]:
    """Seconds to the first answer of a container, and to "ready" as a kubelet asks for it; the answer's distance."""
    with pods.bridge() as network:
        begun_s = time.perf_counter()
        address = network.run("cold", pods.CPU_IMAGE, repository.absolute())
        pods.wait_for(lambda: pods.ask(f"http://{address}:8000/v2/health/ready")[0] == 200, "ready")
        ready_s = time.perf_counter() - begun_s
        vector = first_answer(address, 8000, model, text, begun_s)
        answered_s = time.perf_counter() - begun_s
    return {"first_answer_s": answered_s, "ready_s": ready_s, "distance": distance(vector, expected)}


def main() -> int:
    parser = options(__doc__, served=True)
    parser.add_argument("--starts", type=int, default=7)
    parser.add_argument("--limit", type=float, help="seconds that the median start may take: 3, or 10 of a container")
    parser.add_argument("--container", action="store_true", help="start containers of the CPU image")
    asked = parser.parse_args()
    if asked.container and (reason := pods.why_not()):
        sys.exit(reason)
    limit_s = asked.limit or (10.0 if asked.container else 3.0)
    text, expected = correct_answer(asked.repository, asked.model)
    world = (asked.repository, asked.model, text, expected)
    with tempfile.TemporaryDirectory() as home:
        samples = [
            one_container(*world) if asked.container else one_start(*world, home) for _ in range(max(1, asked.starts))
        ]
    what = "a locked-down container of the CPU image" if asked.container else "`trimaran serve`"
    times = [sample["first_answer_s"] for sample in samples]
    result = {
        "schema": 1,
        "what": f"seconds from the start of {what} to the first correct answer over HTTP",
        "model": asked.model,
        "limit_s": limit_s,
        "median_s": statistics.median(times),
        "fastest_s": min(times),
        "slowest_s": max(times),
        "samples": samples,
        "claims": {
            "every first answer correct": all(sample["distance"] <= LARGEST_DISTANCE for sample in samples),
            "median within the limit": statistics.median(times) <= limit_s,
        },
    }
    return finish(result, asked.output, hidden=("samples",))


if __name__ == "__main__":
    sys.exit(main())
