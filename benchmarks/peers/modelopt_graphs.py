"""What nvidia-modelopt makes of an ONNX graph, without a GPU: INT8 Q/DQ, or FP16 by AutoCast, with its defaults.

    python modelopt_graphs.py int8|fp16 GRAPH.onnx CALIBRATION RESULT.onnx

Runs in an environment of its own (modelopt.txt) and imports nothing of trimaran. CALIBRATION is a folder with one .npz
for each text, with the inputs at their own length: nothing is calibrated on padding.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from modelopt.onnx.autocast import convert_to_mixed_precision
from modelopt.onnx.quantization import quantize
from onnxruntime.quantization.calibrate import CalibrationDataReader

Inputs = dict[str, Any]


class Texts(CalibrationDataReader):  # type: ignore[misc]
    """One text for each step of the calibration."""

    def __init__(self, folder: Path) -> None:
        self._texts = [dict(np.load(path)) for path in sorted(folder.glob("*.npz"))]
        self._left: Iterator[Inputs] = iter(self._texts)

    def get_next(self) -> Inputs | None:
        return next(self._left, None)

    def get_first(self) -> Inputs:
        """modelopt asks it for the shapes of the graph's values: those of the longest text."""
        return max(self._texts, key=lambda inputs: next(iter(inputs.values())).size)

    def rewind(self) -> None:
        self._left = iter(self._texts)


def main() -> None:
    kind, graph, calibration, result = sys.argv[1:]
    if kind == "fp16":
        made = convert_to_mixed_precision(
            graph, low_precision_type="fp16", keep_io_types=True, calibration_data=calibration
        )
        onnx.save(made, result)
        return
    quantize(
        graph,
        quantize_mode="int8",
        calibration_data_reader=Texts(Path(calibration)),
        calibration_eps=["cpu"],
        output_path=result,
        log_level="ERROR",
    )


if __name__ == "__main__":
    main()
