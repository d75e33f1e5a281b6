"""Fuses attention, GELU and layer norms into single kernels, and fails if fewer were fused than expected."""

from __future__ import annotations

import contextlib
import gc
import io
import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trimaran.core.artifact import Artifact, Check, Draft, Recipe
from trimaran.core.environment import tools, usable_cores
from trimaran.core.errors import UsageError, ValidationError
from trimaran.core.families import family
from trimaran.core.onnx_graph import drop_identities, share_equal_weights
from trimaran.core.onnx_write import write_model
from trimaran.core.progress import Progress
from trimaran.core.store import Store
from trimaran.quantize.norms import split_skip_norms
from trimaran.quantize.proof import prove_against_parent

if TYPE_CHECKING:
    import onnx_ir as ir

ENTRY = "model.onnx"
ATOL = 1e-5
# Raise this when the same graph is fused differently: artifacts from before are then made anew.
FORM = 2
# By the config's name of the activation: the fused kernel for it. Other activations have none.
_GELU = {
    "gelu": "BiasGelu",
    "gelu_new": "FastGelu",
    "gelu_fast": "FastGelu",
    "gelu_pytorch_tanh": "FastGelu",
}


def optimize(
    parent: Artifact,
    *,
    store: Store,
    progress: Progress,
    allow_partial: bool = False,
    threads: int | None = None,
) -> Artifact:
    """Make the graph with com.microsoft fusions, for ONNX Runtime alone: TensorRT and OpenVINO read the plain graph."""
    if parent.format != "onnx" or parent.precision != "fp32":
        raise UsageError(f"Only an exported fp32 ONNX graph can be fused, not {parent.format} {parent.precision}.")
    recipe = Recipe(
        step="fused",
        parents=(parent.digest,),
        parameters={"expected": expected_fusions(parent), "allow_partial": allow_partial, "form": FORM},
        tools=tools("onnxruntime", "onnx"),
    )

    def make(folder: Path) -> Draft:
        fused_nodes = fuse(parent, folder / ENTRY)
        checks = receipt(expected_fusions(parent), fused_nodes)
        short = [check for check in checks if not check.holds]
        if short and not allow_partial:
            raise ValidationError(
                f"Fusion fell short: {'; '.join(str(check) for check in short)}.",
                hint="The exporter's pattern has changed. --allow-partial-fusion records the shortfall and goes on.",
            )
        draft = parent.derive(folder, entry=ENTRY, checks=tuple(checks), details={"fused_nodes": fused_nodes})
        proof = prove_against_parent(parent, draft, folder, limit=ATOL, threads=threads or usable_cores())
        return draft.model_copy(update={"checks": (*checks, proof)})

    with progress.stage("optimize") as step:
        artifact = store.produce(recipe, make)
        fused = artifact.details["fused_nodes"]
        step.outcome(", ".join(f"{name} {count}" for name, count in fused.items()))
    return artifact


def fuse(parent: Artifact, target: Path) -> dict[str, int]:
    """Write the fused graph; return how many nodes of each kind were fused.

    Fused residual norms are split again at the end, because their kernel is slow.
    """
    import onnx_ir as ir
    from onnx_ir.passes.common import TopologicalSortPass
    from onnxruntime.transformers.fusion_options import FusionOptions
    from onnxruntime.transformers.optimizer import optimize_model

    row = family(parent.family)
    heads = int(parent.details.get("heads", 0))
    plain = ir.load(parent.entry_path)
    tables = _without_tables(plain)
    put_attention_first(plain)
    ir.external_data.load_to_model(plain)
    proto = ir.to_proto(plain)
    del plain
    with _quiet(), _collecting_often():
        optimizer = optimize_model(
            proto,
            model_type=row.fusion,
            num_heads=heads,
            hidden_size=int(parent.details.get("hidden", 0)) if heads else 0,
            optimization_options=FusionOptions(row.fusion),
            opt_level=0,
        )
    model = ir.from_proto(optimizer.model)
    model.graph.opset_imports.setdefault("com.microsoft", 1)
    for name, table in tables.items():
        if name in model.graph.initializers:
            model.graph.initializers[name].const_value = table
    TopologicalSortPass()(model)
    drop_identities(model)
    # Each fused attention packs its own Q, K and V: layers that share weights would each get a copy.
    share_equal_weights(model)
    operators = Counter(node.op_type for node in model.graph)
    split_skip_norms(model)
    external = bool(parent.details.get("external_weights"))
    write_model(model, target, **({"external_above_bytes": 0} if external else {}))
    return {name: operators[name] for name in expected_fusions(parent)}


def _without_tables(model: ir.Model) -> dict[str, ir.ExternalTensor]:
    """Replace tables in the file beside the graph, which are only looked up, by one row of zeros; return the tables.

    They are most of a large model, and no fusion computes with them.
    """
    import onnx_ir as ir

    tables = {}
    for name, value in model.graph.initializers.items():
        tensor = value.const_value
        if isinstance(tensor, ir.ExternalTensor) and all(user.op_type == "Gather" for user, _ in value.uses()):
            tables[name] = tensor
            row = np.zeros((1, *tensor.shape.numpy()[1:]), tensor.dtype.numpy())
            value.const_value = ir.Tensor(row, name=name)
            value.shape = value.const_value.shape
    return tables


def put_attention_first(model: ir.Model) -> None:
    """Swap the two sides of a residual sum where the projection of embeddings stands before the attention.

    The optimizer follows the first summand that is itself a sum, and so misses the first layer of ALBERT.
    """
    attention = ("Add", "MatMul", "Reshape", "Transpose", "MatMul")
    for node in model.graph:
        if node.op_type != "Add" or len(node.inputs) != 2:
            continue
        first, second = node.inputs
        projected = _made_by(first, "Add", "MatMul") and not _made_by(first, *attention)
        if projected and _made_by(second, *attention):
            node.replace_input_with(0, second)
            node.replace_input_with(1, first)


def _made_by(value: ir.Value | None, *operators: str) -> bool:
    """Whether the first operator made the value from a result of the second, that one from the third's, and so on."""
    for operator in operators:
        node = None if value is None else value.producer()
        if node is None or node.op_type != operator:
            return False
        value = next((entry for entry in node.inputs if entry is not None and entry.producer() is not None), None)
    return True


def expected_fusions(artifact: Artifact) -> dict[str, int]:
    """Return how many nodes of each kind the family's row promises for this many layers and this activation."""
    layers = int(artifact.details["layers"])
    fused = dict(family(artifact.family).fused)
    gelu = _GELU.get(str(artifact.details.get("hidden_act", "gelu")))
    if "BiasGelu" in fused and gelu != "BiasGelu":
        count = fused.pop("BiasGelu")
        if gelu:
            fused[gelu] = count
    return {name: once + layers * each for name, (once, each) in fused.items()}


def receipt(expected: dict[str, int], fused_nodes: dict[str, Any]) -> list[Check]:
    return [
        Check(name=f"fused {name} nodes", observed=fused_nodes.get(name, 0), limit=count, comparison=">=")
        for name, count in expected.items()
    ]


@contextlib.contextmanager
def _collecting_often() -> Iterator[None]:
    """Collect garbage often: each fusion leaves a copy of the whole model in a cycle of references."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(500, 2, 2)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the optimizer, which prints and warns about every pattern that it tries."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.disable(before)
