from __future__ import annotations

import numpy as np

from trimaran.quantize.tensorrt.qdq_scales import half_scale


def test_scales_are_what_fp16_holds() -> None:
    scale = half_scale(np.array([0.1, 1e-9], np.float32))
    assert scale[0] == np.float32(np.float16(0.1))
    assert scale[1] == 2.0**-14
