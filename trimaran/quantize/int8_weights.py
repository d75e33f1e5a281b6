"""INT8 weights with activations scaled per token group at run time, for OpenVINO."""

from __future__ import annotations

import logging
from pathlib import Path

from trimaran.artifact import Artifact, Check
from trimaran.quantize.settings import Made, Settings


def openvino_weights(parent: Artifact, folder: Path, settings: Settings) -> Made:
    import nncf
    import openvino as ov

    nncf.set_log_level(logging.ERROR)
    compressed = nncf.compress_weights(
        ov.convert_model(str(parent.entry_path)), mode=nncf.CompressWeightsMode.INT8_ASYM
    )
    ov.save_model(compressed, folder / "model.xml", compress_to_fp16=False)
    kinds = [
        node.get_element_type().get_type_name() for node in compressed.get_ops() if node.get_type_name() == "Constant"
    ]
    check = Check(name="INT8 weight tensors", observed=kinds.count("u8"), limit=1, comparison=">=")
    return Made(entry="model.xml", checks=(check,))
