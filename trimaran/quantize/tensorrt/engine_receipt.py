"""Compares the builder's fused-layer table with what the graph promised; too few kernels in its types is a failure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimaran.core.artifact import Artifact, Check
from trimaran.core.errors import ValidationError
from trimaran.core.onnx_graph import is_weight

# On every compute capability tried, attention with smaller heads runs as two products and a softmax.
SMALLEST_FUSED_HEAD = 16
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
    softmaxes, attention_type = 0, "Half"
    for node in ir.load(graph).graph:
        softmaxes += node.op_type == "Softmax"
        if node.op_type != "MatMul":
            continue
        makers = [value.producer() for value in node.inputs]
        if all(maker is not None and maker.op_type == "DequantizeLinear" for maker in makers):
            if is_weight(makers[1].inputs[0]):
                linear.setdefault("Int8", []).append(node.name)
            else:
                attention_type = "Int8"
        elif is_weight(node.inputs[1]):
            kind = node.inputs[1].const_value.dtype.name
            linear.setdefault(_TYPES.get(kind, kind), []).append(node.name)
    head = int(parent.details.get("hidden", 0)) // max(1, int(parent.details.get("heads", 1)))
    fused = softmaxes if head >= SMALLEST_FUSED_HEAD and parent.precision != "fp32" else 0
    if parent.precision == "bf16":
        attention_type = "BFloat16"
    return ExpectedKernels({kind: tuple(names) for kind, names in linear.items()}, fused, attention_type)


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
