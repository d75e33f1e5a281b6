"""INT8 weights and activations calibrated on real text, through NNCF, for OpenVINO."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from trimaran.artifact import Artifact, Check
from trimaran.corpus import digest_of_texts, encoder_of
from trimaran.quantize.settings import Made, Settings

SAMPLES = 200
SMOOTHING = 0.95
# NNCF's word for none.
NO_SMOOTHING = -1.0


def openvino_static(parent: Artifact, folder: Path, settings: Settings) -> Made:
    """Every matrix product with a weight in INT8."""
    return _quantized(parent, folder, settings, narrowing_in_float=False)


def openvino_mixed(parent: Artifact, folder: Path, settings: Settings) -> Made:
    """The products that narrow the feed-forward's wide activations stay in float: they carry most of the loss."""
    return _quantized(parent, folder, settings, narrowing_in_float=True)


def _quantized(parent: Artifact, folder: Path, settings: Settings, *, narrowing_in_float: bool) -> Made:
    """SmoothQuant and fast bias correction over unpadded single texts, as the model will be served."""
    import nncf
    import openvino as ov

    nncf.set_log_level(logging.ERROR)
    encoder = encoder_of(parent)
    rows = encoder.rows(settings.calibration[:SAMPLES])
    dataset = nncf.Dataset([encoder.batch([row]) for row in rows])
    model = ov.convert_model(str(parent.entry_path))
    kept = narrowing_products(model) if narrowing_in_float else []
    smoothing = NO_SMOOTHING if shares_layers(parent) else SMOOTHING
    quantized = nncf.quantize(
        model,
        dataset,
        subset_size=len(rows),
        model_type=nncf.ModelType.TRANSFORMER,
        preset=nncf.QuantizationPreset.PERFORMANCE,
        ignored_scope=nncf.IgnoredScope(names=kept) if kept else None,
        advanced_parameters=nncf.AdvancedQuantizationParameters(
            smooth_quant_alphas=nncf.AdvancedSmoothQuantParameters(matmul=smoothing)
        ),
    )
    ov.save_model(quantized, folder / "model.xml", compress_to_fp16=False)
    quantizers = sum(node.get_type_name() == "FakeQuantize" for node in quantized.get_ops())
    return Made(
        entry="model.xml",
        checks=(Check(name="quantised tensors", observed=quantizers, limit=1, comparison=">="),),
        details={
            "calibration": {"texts": len(rows), "digest": digest_of_texts(settings.calibration[:SAMPLES])},
            "smoothing": smoothing,
            "kept_in_float": kept,
        },
    )


def shares_layers(parent: Artifact) -> bool:
    """Whether one layer's weights serve many layers, as in ALBERT: smoothed, each would have its own copy."""
    shared, whole = (int(parent.details.get(key, 0)) for key in ("shared_weight_bytes", "checkpoint_fp32_bytes"))
    return shared > whole // 10


def narrowing_products(model: Any) -> list[str]:
    """Names of the matrix products whose weight has more inputs than outputs."""
    names = []
    for node in model.get_ops():
        if node.get_type_name() != "MatMul":
            continue
        weight = node.input_value(1).get_node()
        if weight.get_type_name() != "Constant" or len(weight.get_output_shape(0)) != 2:
            continue
        rows, columns = weight.get_output_shape(0)
        inputs, outputs = (columns, rows) if node.get_attributes()["transpose_b"] else (rows, columns)
        if inputs > outputs:
            names.append(node.get_friendly_name())
    return names
