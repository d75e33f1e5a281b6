"""The engine on a CPU with AVX2 and no VNNI: MiniLM at `strict` over eager PyTorch, in a race and on mixed texts.

    python benchmarks/without_vnni.py [--resume] [--candidates NAME ...] [--results FOLDER]

Writes `benchmarks/results/avx2-minilm` and from it the figures of `docs/performance.md`. On a CPU with VNNI it refuses:
the candidates would be others.
"""

from __future__ import annotations

from pathlib import Path

from run import bench_minilm

from trimaran.core.instructions import products_by

SUITE = Path(__file__).parent / "without_vnni.toml"
CANDIDATES = ("openvino-fp32", "onnxruntime-fused", "onnxruntime-int8-static", "openvino-int8-mixed")


def main() -> None:
    unfit = "This CPU has VNNI: `make bench` measures it." if products_by({}) == "vnni" else ""
    bench_minilm(__doc__, SUITE, CANDIDATES, "avx2-minilm", unfit=unfit)


if __name__ == "__main__":
    main()
