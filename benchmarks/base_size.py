"""The engine on a BERT-base size: 12 layers of 768, seeded weights, at `balanced` over eager PyTorch.

    python benchmarks/base_size.py [--resume] [--candidates NAME ...] [--results FOLDER]

Writes `benchmarks/results/bert-base-balanced` and from it the figures of `docs/performance.md`.
"""

from __future__ import annotations

import time
from pathlib import Path

from experiment import RESULTS, minutes
from run import bench_by, keep_and_show, suite_options
from sized_models import sized_model

from trimaran.core.store import default_home

SUITE = Path(__file__).parent / "base_size.toml"
# One float engine, and all that may win: each is judged on hundreds of texts, which takes a while at this size.
CANDIDATES = ("openvino-fp32", "onnxruntime-int8-static", "openvino-int8-mixed", "openvino-int8-weights")


def main() -> None:
    parser = suite_options(__doc__, CANDIDATES)
    parser.add_argument("--size", default="12x768", help="another size of sized_models.py: a trial")
    asked = parser.parse_args()
    if asked.results == RESULTS and asked.size != "12x768":
        parser.error("a trial of another size is no committed result: give --results FOLDER")
    begun_s = time.monotonic()
    home = default_home()
    folder = home / "bench" / f"sized-{asked.size}"
    model = sized_model(asked.size, home / "growth" / asked.size)
    flags = ["--task", "embedding", "--name", "bert-base", "--fidelity", "balanced"]
    bench_by(SUITE, folder, model, [*flags, "--candidates", ",".join(asked.candidates)], resume=asked.resume)
    keep_and_show(folder, asked.results, "bert-base-balanced")
    minutes(begun_s)


if __name__ == "__main__":
    main()
