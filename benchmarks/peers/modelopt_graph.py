"""nvidia-modelopt's graph of an ONNX file, made with no GPU; runs in the environment of `modelopt.txt`.

    python modelopt_graph.py GRAPH OUTPUT fp16|int8|int8-linear CALIBRATION

CALIBRATION is a folder of .npz files, each with the inputs of one call. `int8-linear` leaves attention in FP16.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np


class Calls:
    """What modelopt asks for calibration: the inputs of one call after another."""

    def __init__(self, folder: Path) -> None:
        self._paths = sorted(folder.glob("*.npz"))
        self.rewind()

    def get_next(self) -> dict[str, Any] | None:
        path = next(self._left, None)
        return dict(np.load(path)) if path else None

    def get_first(self) -> dict[str, Any]:
        return dict(np.load(self._paths[0]))

    def rewind(self) -> None:
        self._left: Iterator[Path] = iter(self._paths)

    def set_range(self, start_index: int, end_index: int) -> None:
        self._left = iter(self._paths[start_index:end_index])

    def __len__(self) -> int:
        return len(self._paths)

    def __iter__(self) -> Calls:
        return self

    def __next__(self) -> dict[str, Any]:
        inputs = self.get_next()
        if inputs is None:
            raise StopIteration
        return inputs


def main(graph: str, output: str, kind: str, calibration: str) -> None:
    import onnx

    if kind == "fp16":
        from modelopt.onnx.autocast import convert_to_mixed_precision

        # It reads one call: the last one, which is the longest.
        longest = max(Path(calibration).glob("*.npz"), key=lambda path: path.stat().st_size)
        model = convert_to_mixed_precision(graph, keep_io_types=True, calibration_data=str(longest), providers=["cpu"])
        onnx.save(model, output)
        return
    from modelopt.onnx.quantization import quantize

    quantize(
        graph,
        quantize_mode="int8",
        calibration_data_reader=Calls(Path(calibration)),
        calibration_eps=["cpu"],
        disable_mha_qdq=kind == "int8-linear",
        output_path=output,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
