"""Fuses attention, GELU and layer norms into single kernels, with a receipt: fewer than expected is a failure."""

from __future__ import annotations

import contextlib
import gc
import io
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trimaran.core.artifact import Artifact, Check, Draft, Recipe
from trimaran.core.environment import tools, usable_cores
from trimaran.core.errors import UsageError, ValidationError
from trimaran.core.families import family
from trimaran.core.onnx_graph import load_graph, put_back, save_graph, share_equal_weights
from trimaran.core.progress import Progress
from trimaran.core.store import Store
from trimaran.quantize.proof import prove_against_parent

ENTRY = "model.onnx"
ATOL = 1e-5
# The exact form has a fused kernel with its bias, the tanh approximation one of its own; others have none.
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
    """The graph with com.microsoft fusions, for ONNX Runtime alone: TensorRT and OpenVINO read the plain graph."""
    if parent.format != "onnx" or parent.precision != "fp32":
        raise UsageError(f"Only an exported fp32 ONNX graph can be fused, not {parent.format} {parent.precision}.")
    recipe = Recipe(
        step="fused",
        parents=(parent.digest,),
        parameters={"expected": expected_fusions(parent), "allow_partial": allow_partial},
        tools=tools("onnxruntime", "onnx"),
    )

    def make(folder: Path) -> Draft:
        found = fuse(parent, folder / ENTRY)
        checks = receipt(expected_fusions(parent), found)
        short = [check for check in checks if not check.holds]
        if short and not allow_partial:
            raise ValidationError(
                f"Fusion fell short: {'; '.join(str(check) for check in short)}.",
                hint="The exporter's pattern has changed. --allow-partial-fusion records the shortfall and goes on.",
            )
        shutil.copy(parent.directory / "tokenizer.json", folder / "tokenizer.json")
        draft = Draft(
            **{
                **parent.model_dump(include=set(Draft.model_fields)),
                "entry": ENTRY,
                "checks": tuple(checks),
                "details": {**parent.details, "fused_nodes": found},
            }
        )
        proof = prove_against_parent(parent, draft, folder, limit=ATOL, threads=threads or usable_cores())
        return draft.model_copy(update={"checks": (*checks, proof)})

    with progress.stage("optimize") as step:
        artifact = store.produce(recipe, make)
        fused = artifact.details["fused_nodes"]
        step.outcome(", ".join(f"{name} {count}" for name, count in fused.items()))
    return artifact


def fuse(parent: Artifact, target: Path) -> dict[str, int]:
    """Writes the fused graph and returns how many nodes of each fused kind it holds."""
    import onnx
    from onnxruntime.transformers.fusion_options import FusionOptions
    from onnxruntime.transformers.optimizer import optimize_model

    row = family(parent.family)
    heads = int(parent.details.get("heads", 0))
    graph, tables = load_graph(parent.entry_path)
    put_attention_first(graph.graph)
    with _quiet(), _collecting_often():
        optimizer = optimize_model(
            graph,
            model_type=row.fusion,
            num_heads=heads,
            hidden_size=int(parent.details.get("hidden", 0)) if heads else 0,
            optimization_options=FusionOptions(row.fusion),
            opt_level=0,
        )
        optimizer.topological_sort()
    model = optimizer.model
    if not any(entry.domain == "com.microsoft" for entry in model.opset_import):
        model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    put_back(model, tables)
    # Each fused attention packs its own Q, K and V: layers that share weights would each get a copy.
    beside = parent.directory
    share_equal_weights(model, beside)
    limit = 0 if parent.details.get("external_weights") else None
    save_graph(model, target, external_above_bytes=limit, beside=beside)
    operators = [node.op_type for node in model.graph.node]
    found = {name: operators.count(name) for name in expected_fusions(parent)}
    return found


def put_attention_first(graph: Any) -> None:
    """Swaps the two sides of a residual sum where the projection of embeddings stands before the attention.

    The optimizer follows the first summand that is itself a sum, and so misses the first layer of ALBERT.
    """
    producers = {name: node for node in graph.node for name in node.output}

    def chain(name: str, *kinds: str) -> bool:
        for kind in kinds:
            node = producers.get(name)
            if node is None or node.op_type != kind:
                return False
            name = next((entry for entry in node.input if entry in producers), "")
        return True

    for node in graph.node:
        if node.op_type != "Add" or len(node.input) != 2:
            continue
        first, second = node.input
        attention = ("Add", "MatMul", "Reshape", "Transpose", "MatMul")
        if chain(first, "Add", "MatMul") and not chain(first, *attention) and chain(second, *attention):
            node.input[0], node.input[1] = second, first


def expected_fusions(artifact: Artifact) -> dict[str, int]:
    """The row's counts for this many layers, the GELU by the form that the config names."""
    layers = int(artifact.details["layers"])
    fused = dict(family(artifact.family).fused)
    gelu = _GELU.get(str(artifact.details.get("hidden_act", "gelu")))
    if "BiasGelu" in fused and gelu != "BiasGelu":
        count = fused.pop("BiasGelu")
        if gelu:
            fused[gelu] = count
    return {name: once + layers * each for name, (once, each) in fused.items()}


def receipt(expected: dict[str, int], found: dict[str, Any]) -> list[Check]:
    return [
        Check(name=f"fused {name} nodes", observed=found.get(name, 0), limit=count, comparison=">=")
        for name, count in expected.items()
    ]


@contextlib.contextmanager
def _collecting_often() -> Iterator[None]:
    """Each fusion infers shapes on a copy of the whole model, and leaves it in a ring of references."""
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
    """The optimizer prints and warns about every pattern that it tries."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.disable(before)
