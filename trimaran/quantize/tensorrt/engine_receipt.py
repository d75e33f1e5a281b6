"""Compares the builder's fused-layer table with what the graph promised; too few kernels in its types is a failure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimaran.core.artifact import Artifact, Check
from trimaran.core.errors import ValidationError
from trimaran.core.onnx_graph import is_weight
from trimaran.core.progress import Progress

if TYPE_CHECKING:
    import onnx_ir as ir

# Heads that run as one kernel. On every compute capability tried, smaller ones run as two products and a softmax.
SMALLEST_FUSED_HEAD, LARGEST_FUSED_HEAD, HEAD_STEP = 16, 256, 8
# In INT8 only these, up to this many tokens; and the result must be quantised, too (TensorRT issue 2981).
INT8_FUSED_HEADS, INT8_MOST_TOKENS = (16, 32, 64), 512
FUSED_ATTENTION = "_gemm_mha"
_LINE = re.compile(
    r"^Name: (?P<name>.*?), LayerType: (?P<kind>\w+), Inputs: (?P<inputs>.*?), "
    r"(?:Constants: .*?, )?Outputs: (?P<outputs>.*?), (?:TacticName|ParameterType|StreamId)",
)
_TYPE = re.compile(r"Datatype: (\w+)")
_ORIGIN = re.compile(r"\[ONNX Layer: ([^\]]*)\]")
_TYPES = {"FLOAT": "Float", "FLOAT16": "Half", "BFLOAT16": "BFloat16"}


@dataclass(frozen=True)
class FusedLayer:
    """A kernel of the engine."""

    name: str
    kind: str
    # The types that it reads and writes.
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    # The ONNX nodes that went into it.
    nodes: tuple[str, ...]

    @property
    def is_product(self) -> bool:
        """Pointwise kernels (kgen) also name products: those whose operands they move or quantise."""
        return self.kind != "kgen" or FUSED_ATTENTION in self.name


@dataclass(frozen=True)
class ExpectedKernels:
    """What the graph promises of an engine."""

    # By type: the linear products that must run in it.
    linear: Mapping[str, tuple[str, ...]]
    # How many attentions must be one kernel, and in which type.
    attentions: int
    attention_type: str = "Half"


def parse_layers(text: str) -> tuple[FusedLayer, ...]:
    """Return the rows of one `Layers:` message."""
    layers = []
    for line in text.splitlines():
        if match := _LINE.match(line.strip()):
            layers.append(
                FusedLayer(
                    name=match["name"],
                    kind=match["kind"],
                    inputs=tuple(_TYPE.findall(match["inputs"])),
                    outputs=tuple(_TYPE.findall(match["outputs"])),
                    nodes=tuple(_ORIGIN.findall(line)),
                )
            )
    return tuple(layers)


def expected_of(graph: Path, parent: Artifact) -> ExpectedKernels:
    """Return what the graph's types promise: products between Q/DQ in Int8, others in the type of their weights."""
    import onnx_ir as ir

    linear: dict[str, list[str]] = {}
    softmaxes, attention_type, quantised_results = 0, "Half", 0
    for node in ir.load(graph).graph:
        softmaxes += node.op_type == "Softmax" and not _is_capped(node)
        if node.op_type != "MatMul":
            continue
        makers = [value.producer() for value in node.inputs]
        if all(maker is not None and maker.op_type == "DequantizeLinear" for maker in makers):
            if is_weight(makers[1].inputs[0]):
                linear.setdefault("Int8", []).append(node.name)
            else:
                attention_type = "Int8"
                quantised_results += _is_quantised(node.outputs[0])
        elif is_weight(node.inputs[1]):
            kind = node.inputs[1].const_value.dtype.name
            linear.setdefault(_TYPES.get(kind, kind), []).append(node.name)
    head = head_size(parent)
    fusible = SMALLEST_FUSED_HEAD <= head <= LARGEST_FUSED_HEAD and head % HEAD_STEP == 0
    fused = softmaxes if fusible and parent.precision != "fp32" else 0
    if attention_type == "Int8":
        short = parent.profile.sequence.maximum <= INT8_MOST_TOKENS
        # An output projection in FP16 leaves its attention without the Q after the product with V.
        fused = min(fused, quantised_results) if head in INT8_FUSED_HEADS and short else 0
    if parent.precision == "bf16":
        attention_type = "BFloat16"
    return ExpectedKernels({kind: tuple(names) for kind, names in linear.items()}, fused, attention_type)


def head_size(parent: Artifact) -> int:
    """How many channels an attention head of this model has."""
    return int(parent.details.get("hidden", 0)) // max(1, int(parent.details.get("heads", 1)))


def _is_capped(softmax: ir.Node) -> bool:
    """Whether a Tanh limits the scores (Gemma 2): the fused kernel has none, so such an attention stays in parts."""
    waiting, seen = [softmax], set()
    while waiting:
        node = waiting.pop()
        if node.op_type == "Tanh":
            return True
        seen.add(node)
        makers = [value.producer() for value in node.inputs if value is not None]
        waiting += [maker for maker in makers if maker is not None and maker.op_type != "MatMul" and maker not in seen]
    return False


def _is_quantised(value: ir.Value) -> bool:
    """Whether the first node that computes with this value, behind changes of layout, quantises it."""
    readers = [use.node for use in value.uses()]
    while len(readers) == 1 and readers[0].op_type in ("Transpose", "Reshape"):
        readers = [use.node for use in readers[0].outputs[0].uses()]
    return bool(readers) and all(node.op_type == "QuantizeLinear" for node in readers)


def receipt(expected: ExpectedKernels, tables: Sequence[str]) -> tuple[Check, ...]:
    """Compare expected with built kernels; with several compute capabilities the worst of their tables counts."""
    parsed = [parse_layers(table) for table in tables]
    where = f"in {len(parsed)} fused-layer {'table' if len(parsed) == 1 else 'tables'}"
    checks = [
        Check(
            name=f"linear products in {kind}",
            observed=min((_running_in(layers, kind, names) for layers in parsed), default=0),
            limit=len(names),
            comparison=">=",
            detail=where,
        )
        for kind, names in sorted(expected.linear.items())
    ]
    checks.append(
        Check(
            name=f"attentions in one {expected.attention_type} kernel",
            observed=min((_attentions(layers, expected.attention_type) for layers in parsed), default=0),
            limit=expected.attentions,
            comparison=">=",
            detail=where,
        )
    )
    return tuple(checks)


def refuse_shortfall(checks: Sequence[Check], log: Path) -> None:
    short = [str(check) for check in checks if not check.holds]
    if short:
        raise ValidationError(
            f"The engine is not what the graph promised: {'; '.join(short)}.",
            hint=f"The builder's log is {log}. --allow-shortfall records it and goes on.",
            log=str(log),
        )


def note_shortfall(checks: Sequence[Check], progress: Progress) -> None:
    for check in checks:
        if not check.holds:
            progress.note(f"Warning: the builder's log does not show what the graph promised: {check}.")


def kernel_counts(tables: Sequence[str]) -> list[dict[str, Any]]:
    """Return what the manifest keeps of each table: all kernels, products by the type they read, fused attentions."""
    counts = []
    for layers in map(parse_layers, tables):
        products: dict[str, int] = {}
        for layer in layers:
            if layer.inputs and layer.kind in ("gemm", "runtime_fusion"):
                products[layer.inputs[0]] = products.get(layer.inputs[0], 0) + 1
        fused = {kind: count for kind in sorted({"Half", "BFloat16", "Int8"}) if (count := _attentions(layers, kind))}
        counts.append({"kernels": len(layers), "products": products, "fused_attentions": fused})
    return counts


def _attentions(layers: Sequence[FusedLayer], kind: str) -> int:
    return sum(FUSED_ATTENTION in layer.name and layer.inputs[:1] == (kind,) for layer in layers)


def _running_in(layers: Sequence[FusedLayer], kind: str, names: Sequence[str]) -> int:
    """Return how many of these products run in a kernel that reads this type; one kernel may hold several of them."""
    running = {node for layer in layers if layer.is_product and layer.inputs[:1] == (kind,) for node in layer.nodes}
    return sum(name in running for name in names)
