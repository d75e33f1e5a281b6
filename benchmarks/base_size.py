"""The engine on a BERT-base size: 12 layers of 768, seeded weights, at `balanced` over eager PyTorch.

    python benchmarks/base_size.py [--resume] [--candidates NAME ...] [--results FOLDER]

Writes `benchmarks/results/bert-base-balanced` and from it the figures of `docs/performance.md`.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from experiment import RESULTS, minutes, options
from performance import write_page
from run import bench_within, is_whole, keep
from sized_models import sized_model

from trimaran.benchmarks.scenarios.suite_state import FILE
from trimaran.core.store import default_home

SUITE = Path(__file__).parent / "base_size.toml"
# One float engine, and all that may win: each is judged on hundreds of texts, which takes a while at this size.
CANDIDATES = ("openvino-fp32", "onnxruntime-int8-static", "openvino-int8-mixed", "openvino-int8-weights")


def main() -> None:
    parser = options(__doc__, keeps=False)
    parser.add_argument("--resume", action="store_true", help="take up a run that was cut")
    parser.add_argument("--candidates", nargs="+", default=CANDIDATES)
    parser.add_argument("--size", default="12x768", help="another size of sized_models.py: a trial")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where a whole result goes; elsewhere is a trial")
    asked = parser.parse_args()
    if asked.results == RESULTS and asked.size != "12x768":
        parser.error("a trial of another size is no committed result: give --results FOLDER")
    begun_s = time.monotonic()
    home = default_home()
    folder = home / "bench" / f"sized-{asked.size}"
    model = sized_model(asked.size, home / "growth" / asked.size)
    if not (asked.resume and is_whole(folder)):
        folder.mkdir(parents=True, exist_ok=True)
        suite = shutil.copy(SUITE, folder.parent)
        within = {"-m": model, "--suite": suite, "--report": folder}
        paths = [part for name, path in within.items() for part in (name, str(Path(path).relative_to(home)))]
        flags = ["--task", "embedding", "--name", "bert-base", "--fidelity", "balanced"]
        chosen = ["--candidates", ",".join(asked.candidates)]
        bench_within(home, [*paths, *flags, *chosen], resume=asked.resume and (folder / FILE).is_file())
    keep(folder, asked.results / "bert-base-balanced")
    if asked.results == RESULTS:
        print(write_page())
    minutes(begun_s)


if __name__ == "__main__":
    main()
