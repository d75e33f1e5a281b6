"""Candidates in full precision: the graph as it is, for ONNX Runtime and for OpenVINO."""

from __future__ import annotations

import shutil
from pathlib import Path

from trimaran.core.artifact import Artifact
from trimaran.quantize.int8.openvino_graph import save_openvino
from trimaran.quantize.settings import Made, Settings


def onnx_copy(parent: Artifact, folder: Path, settings: Settings) -> Made:
    """Weights of more than 2 GB lie in a file beside the graph, which refers to it by name."""
    for path in parent.directory.glob(f"{parent.entry}*"):
        shutil.copy(path, folder / path.name)
    return Made(entry=parent.entry)


def openvino_ir(parent: Artifact, folder: Path, settings: Settings) -> Made:
    import openvino as ov

    return Made(entry=save_openvino(ov.convert_model(str(parent.entry_path)), folder))
