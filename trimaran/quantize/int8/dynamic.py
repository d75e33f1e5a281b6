"""INT8 weights with activations scaled at run time, in ONNX Runtime's integer kernels."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from trimaran.core.artifact import Artifact, Check
from trimaran.quantize.settings import MadeCandidate, MakerSettings

_INTEGER = ("QAttention", "DynamicQuantizeMatMul", "MatMulIntegerToFloat", "MatMulInteger", "DynamicQuantizeLSTM")


def onnxruntime_dynamic(parent: Artifact, folder: Path, settings: MakerSettings) -> MadeCandidate:
    """Weights are symmetric, with a scale for each channel; an activation has one scale for a whole batch."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    # The fused graph has com.microsoft operators, whose output types ONNX does not infer. DefaultTensorType tells the
    # quantizer that they are float.
    quantize_dynamic(
        str(parent.entry_path),
        str(folder / "model.onnx"),
        weight_type=QuantType.QInt8,
        per_channel=True,
        op_types_to_quantize=["MatMul", "Attention"],
        use_external_data_format=bool(parent.details.get("external_weights")),
        extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT, "WeightSymmetric": True},
    )
    operators = Counter(
        node.op_type for node in onnx.load(str(folder / "model.onnx"), load_external_data=False).graph.node
    )
    integer = sum(operators[name] for name in _INTEGER)
    check = Check(name="integer matrix products", observed=integer, limit=1, comparison=">=")
    return MadeCandidate(entry="model.onnx", checks=(check,), details={"operators": dict(sorted(operators.items()))})
