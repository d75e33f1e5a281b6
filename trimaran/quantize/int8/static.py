"""INT8 weights and activations calibrated on real text, through NNCF, for OpenVINO."""

from __future__ import annotations

import logging
from pathlib import Path

from trimaran.core.artifact import Artifact, Check
from trimaran.core.corpus import encoder_of, spread
from trimaran.quantize.activations import calibration_facts
from trimaran.quantize.int8.openvino_graph import save_openvino
from trimaran.quantize.settings import MadeCandidate, MakerSettings

SAMPLES = 200
SMOOTHING = 0.95
# What NNCF takes for "do not smooth".
NO_SMOOTHING = -1.0


def openvino_static(parent: Artifact, folder: Path, settings: MakerSettings) -> MadeCandidate:
    """Every product with a weight is in INT8, with SmoothQuant and fast bias correction over single texts."""
    import nncf
    import openvino as ov

    nncf.set_log_level(logging.ERROR)
    encoder = encoder_of(parent)
    texts = spread(settings.calibration, SAMPLES)
    rows = encoder.rows(texts)
    dataset = nncf.Dataset([encoder.batch([row]) for row in rows])
    model = ov.convert_model(str(parent.entry_path))
    smoothing = NO_SMOOTHING if shares_layers(parent) else SMOOTHING
    quantized = nncf.quantize(
        model,
        dataset,
        subset_size=len(rows),
        model_type=nncf.ModelType.TRANSFORMER,
        preset=nncf.QuantizationPreset.PERFORMANCE,
        advanced_parameters=nncf.AdvancedQuantizationParameters(
            smooth_quant_alphas=nncf.AdvancedSmoothQuantParameters(matmul=smoothing)
        ),
    )
    quantizers = sum(node.get_type_name() == "FakeQuantize" for node in quantized.get_ops())
    return MadeCandidate(
        entry=save_openvino(quantized, folder),
        checks=(Check(name="quantised tensors", observed=quantizers, limit=1, comparison=">="),),
        details={
            "calibration": calibration_facts(texts),
            "smoothing": smoothing,
        },
    )


def shares_layers(parent: Artifact) -> bool:
    """Whether many layers use the weights of one, as in ALBERT. Smoothed, each would get its own copy."""
    shared, whole = (int(parent.details.get(key, 0)) for key in ("shared_weight_bytes", "checkpoint_fp32_bytes"))
    return shared > whole // 10
