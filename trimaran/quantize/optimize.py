"""Fuses attention, GELU and layer norms into single kernels, with a receipt: fewer than expected is a failure."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from trimaran.artifact import Artifact, Check, Draft, Recipe
from trimaran.environment import tools
from trimaran.errors import UsageError, ValidationError
from trimaran.families import family
from trimaran.progress import Progress
from trimaran.quantize.proof import prove_against_parent
from trimaran.store import Store

ENTRY = "model.onnx"
ATOL = 1e-5


def optimize(parent: Artifact, *, store: Store, progress: Progress, allow_partial: bool = False) -> Artifact:
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
        proof = prove_against_parent(parent, draft, folder, limit=ATOL, threads=1)
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
    model = optimize_model(
        str(parent.entry_path),
        model_type=row.fusion,
        num_heads=int(parent.details.get("heads", 0)),
        hidden_size=int(parent.details.get("hidden", 0)),
        optimization_options=FusionOptions(row.fusion),
        opt_level=0,
    )
    model.save_model_to_file(str(target))
    operators = [node.op_type for node in onnx.load(str(target), load_external_data=False).graph.node]
    return {name: operators.count(name) for name in row.fused}


def expected_fusions(artifact: Artifact) -> dict[str, int]:
    layers = int(artifact.details["layers"])
    return {name: once + layers * each for name, (once, each) in family(artifact.family).fused.items()}


def receipt(expected: dict[str, int], found: dict[str, Any]) -> list[Check]:
    return [
        Check(name=f"fused {name} nodes", observed=found.get(name, 0), limit=count, comparison=">=")
        for name, count in expected.items()
    ]
