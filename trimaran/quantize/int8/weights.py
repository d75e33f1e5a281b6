"""INT8 weights for OpenVINO; activations are scaled at run time, by groups of channels or by whole tokens."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from trimaran.core.artifact import Artifact, Check
from trimaran.quantize.int8.openvino_graph import save_openvino
from trimaran.quantize.settings import MadeCandidate, MakerSettings


def openvino_weights(parent: Artifact, folder: Path, settings: MakerSettings) -> MadeCandidate:
    """Weights have a zero point, so that every level is used."""
    import nncf

    return _compressed(parent, folder, nncf.CompressWeightsMode.INT8_ASYM, type_name="u8")


def openvino_dynamic(parent: Artifact, folder: Path, settings: MakerSettings) -> MadeCandidate:
    """Weights are symmetric, which the fastest integer products need."""
    import nncf

    return _compressed(parent, folder, nncf.CompressWeightsMode.INT8_SYM, type_name="i8")


def _compressed(parent: Artifact, folder: Path, mode: Any, *, type_name: str) -> MadeCandidate:
    import nncf
    import openvino as ov

    nncf.set_log_level(logging.ERROR)
    compressed = nncf.compress_weights(ov.convert_model(str(parent.entry_path)), mode=mode)
    types = [
        node.get_element_type().get_type_name() for node in compressed.get_ops() if node.get_type_name() == "Constant"
    ]
    check = Check(name="INT8 weight tensors", observed=types.count(type_name), limit=1, comparison=">=")
    return MadeCandidate(entry=save_openvino(compressed, folder), checks=(check,))
