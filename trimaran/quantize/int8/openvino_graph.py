"""Writes an OpenVINO graph so that the same graph is always the same file, with its mask in the short form."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

from trimaran.quantize.int8.openvino_mask import shorten_mask
from trimaran.quantize.int8.openvino_packed import note_packing
from trimaran.quantize.int8.openvino_widths import note_fixed_widths

ENTRY = "model.xml"
# Goes up when the same graph is written differently: artifacts from before are then made anew.
FORM = 5
_COUNTED = re.compile(r"^[A-Z][A-Za-z0-9]*_\d+")


def save_openvino(model: Any, folder: Path, *, final: bool = True) -> str:
    """Write the graph; return the entry's name. A trial (not `final`) skips what changes no answer.

    OpenVINO names the nodes that it adds by a counter of the whole process. Here they are numbered by their place in
    the graph.
    """
    import openvino as ov

    if final:
        shorten_mask(model)
    for index, node in enumerate(model.get_ordered_ops()):
        if _COUNTED.match(node.get_friendly_name()):
            node.set_friendly_name(f"{node.get_type_name()}_{index}")
        facts = node.get_rt_info()
        for key in [key for key in facts if key.startswith("fused_names")]:
            del facts[key]
    # compress_to_fp16 is OpenVINO's default when saving; it would silently change the weights.
    ov.save_model(model, folder / ENTRY, compress_to_fp16=False)
    return ENTRY


def pack_saved(path: Path) -> dict[str, Any]:
    """Write into a saved graph how padding can be left out of it, and which widths get a copy of their own.

    Return both, for the details of the artifact.
    """
    import openvino as ov

    model = ov.Core().read_model(path)
    if not note_packing(model):
        return {"packed": False}
    widths = note_fixed_widths(model, path.with_suffix(".bin").stat().st_size)
    # Into another folder first: the weights are mapped from the very file that is written anew.
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        ov.save_model(model, Path(folder) / path.name, compress_to_fp16=False)
        for file in Path(folder).iterdir():
            file.replace(path.with_name(file.name))
    return {"packed": True, "fixed_widths": widths}
