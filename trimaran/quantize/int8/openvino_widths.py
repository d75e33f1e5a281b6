"""Notes in an OpenVINO graph for which widths the engine compiles a copy that takes one text of this width.

A dynamic graph prepares its nodes anew between the kernels of every call; a short text feels that most. Packed rows
have a multiple of 16 places, so two copies serve all single texts of up to 32 tokens.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trimaran.quantize.int8.openvino_packed import answers_of, input_types
from trimaran.quantize.padded_calls import agree_where_shown, padded_call
from trimaran.runtime.openvino_engine import for_one_text, note_widths
from trimaran.runtime.text import PACKED_STEP

WIDTHS = (PACKED_STEP, 2 * PACKED_STEP)
# A copy costs about half the graph's size in memory, in every process that serves it. Larger graphs also gain less:
# their kernels take most of a call.
LARGEST_BYTES = 100_000_000
_CALLS = 12


def note_fixed_widths(model: Any, size_bytes: int) -> list[int]:
    """Write the widths into the graph, and return them: those at which the copy answers the same to the last bit."""
    if size_bytes > LARGEST_BYTES:
        return []
    widths = [width for width in WIDTHS if _answers_alike(model, width)]
    if widths:
        note_widths(model, widths)
    return widths


def _answers_alike(model: Any, width: int) -> bool:
    """Whether the copy and the graph give the same numbers to single texts of unlike length."""
    generator = np.random.default_rng(width)
    lengths = np.linspace(1, width, _CALLS).astype(int)
    calls = [padded_call(input_types(model), [length], width, generator) for length in lengths]
    answers = [answers_of(graph, [call.inputs for call in calls]) for graph in (model, for_one_text(model, width))]
    return agree_where_shown(calls, *answers)
