"""Candidates in full precision: the graph as it is, for ONNX Runtime and for OpenVINO."""

from __future__ import annotations

import shutil
from pathlib import Path

from trimaran.core.artifact import Artifact
from trimaran.core.call_memory import ATTENTION_BLOCKS
from trimaran.quantize.attention_blocks import block_saved
from trimaran.quantize.int8.openvino_graph import save_openvino
from trimaran.quantize.settings import MadeCandidate, MakerSettings


def onnx_copy(parent: Artifact, folder: Path, settings: MakerSettings) -> MadeCandidate:
    """Copy the graph, and the file beside it that holds weights of more than 2 GB."""
    for path in parent.directory.glob(f"{parent.entry}*"):
        shutil.copy(path, folder / path.name)
    return MadeCandidate(entry=parent.entry)


def onnxruntime_float(parent: Artifact, folder: Path, settings: MakerSettings) -> MadeCandidate:
    """The graph for the CPU: attention of long texts is computed in blocks."""
    made = onnx_copy(parent, folder, settings)
    blocks = block_saved(folder / made.entry, parent.profile.sequence.maximum)
    return made.model_copy(update={"details": {ATTENTION_BLOCKS: blocks}}) if blocks else made


def openvino_ir(parent: Artifact, folder: Path, settings: MakerSettings) -> MadeCandidate:
    import openvino as ov

    return MadeCandidate(entry=save_openvino(ov.convert_model(str(parent.entry_path)), folder))
