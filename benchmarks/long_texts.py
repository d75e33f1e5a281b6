"""The engine on long texts: MiniLM at `strict`, for texts of up to 512 tokens, over eager PyTorch.

    python benchmarks/long_texts.py [--resume] [--candidates NAME ...] [--results FOLDER]

Writes `benchmarks/results/minilm-long` and from it the figures of `docs/performance.md`.
"""

from __future__ import annotations

from pathlib import Path

from run import bench_minilm

SUITE = Path(__file__).parent / "long_texts.toml"
# One float engine, and all that may win.
CANDIDATES = ("openvino-fp32", "onnxruntime-fused", "onnxruntime-int8-static", "openvino-int8-mixed")
PROFILE = ("--batch", "1", "1", "8", "--sequence", "1", "512", "512")


def main() -> None:
    bench_minilm(__doc__, SUITE, CANDIDATES, "minilm-long", PROFILE)


if __name__ == "__main__":
    main()
