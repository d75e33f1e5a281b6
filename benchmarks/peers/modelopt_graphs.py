"""What nvidia-modelopt makes of an ONNX graph, without a GPU: INT8 Q/DQ, or FP16 by AutoCast, with its defaults.

    python modelopt_graphs.py int8|fp16 GRAPH.onnx CALIBRATION.npz RESULT.onnx

Runs in an environment of its own (modelopt.txt) and imports nothing of trimaran. The calibration file has one array of
padded rows for each input.
"""

from __future__ import annotations

import sys

import numpy as np
import onnx
from modelopt.onnx.autocast import convert_to_mixed_precision
from modelopt.onnx.quantization import quantize


def main() -> None:
    kind, graph, calibration, result = sys.argv[1:]
    if kind == "fp16":
        onnx.save(convert_to_mixed_precision(graph, low_precision_type="fp16", keep_io_types=True), result)
        return
    with np.load(calibration) as data:
        rows = {name: data[name] for name in data.files}
    quantize(
        graph,
        quantize_mode="int8",
        calibration_data=rows,
        calibration_eps=["cpu"],
        # Else it writes for one row of the default length.
        calibration_shapes=",".join(f"{name}:{'x'.join(map(str, array.shape))}" for name, array in rows.items()),
        output_path=result,
        log_level="ERROR",
    )


if __name__ == "__main__":
    main()
