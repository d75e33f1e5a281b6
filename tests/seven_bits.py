"""The command as on a CPU without VNNI: `python -m tests.seven_bits deploy ...` makes INT8 weights of 7 bits.

Products of 7-bit weights are exact on every CPU, so the answers are those of a machine with AVX2 only.
"""

from __future__ import annotations

from trimaran.cli import main
from trimaran.pipeline import lower_bounds, making
from trimaran.quantize.int8.saturation import NARROW


def narrow_weight(backend: str, restriction: tuple[tuple[str, str], ...]) -> int:
    return NARROW


if __name__ == "__main__":
    vars(lower_bounds)["largest_weight"] = vars(making)["largest_weight"] = narrow_weight
    main()
