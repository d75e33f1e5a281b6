"""What nvidia-modelopt makes of an ONNX graph, without a GPU: INT8 Q/DQ, and FP16 by AutoCast.

    python modelopt_graphs.py GRAPH.onnx CALIBRATION.npz FOLDER

Runs in an environment of its own (modelopt.txt) and imports nothing of trimaran. The calibration file has one array of
padded rows for each input. It writes `int8.onnx` and `fp16.onnx` into the folder, both with the defaults of modelopt.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
from modelopt.onnx.autocast import convert_to_mixed_precision
from modelopt.onnx.quantization import quantize


def main() -> None:
    graph, calibration, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    with np.load(calibration) as data:
        rows = {name: data[name] for name in data.files}
    quantize(
        graph,
        quantize_mode="int8",
        calibration_data=rows,
        calibration_eps=["cpu"],
        # Else it writes for one row of the default length.
        calibration_shapes=",".join(f"{name}:{'x'.join(map(str, array.shape))}" for name, array in rows.items()),
        output_path=str(folder / "int8.onnx"),
        log_level="ERROR",
    )
    onnx.save(convert_to_mixed_precision(graph, low_precision_type="fp16", keep_io_types=True), folder / "fp16.onnx")


if __name__ == "__main__":
    main()
