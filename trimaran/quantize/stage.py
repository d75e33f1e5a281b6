"""Makes one candidate from its parent graph: the maker writes it, it is run on real text, and it is published."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from trimaran.core.artifact import Artifact, Draft, Recipe
from trimaran.core.backends import backend
from trimaran.core.call_memory import ATTENTION_BLOCKS
from trimaran.core.corpus import digest_of_texts
from trimaran.core.environment import tools
from trimaran.core.errors import UnavailableError, UsageError
from trimaran.core.metrics import METRICS_VERSION
from trimaran.core.progress import Progress
from trimaran.core.spec import DType, Signature
from trimaran.core.store import Store
from trimaran.quantize.attention_blocks import FORM as BLOCKS_FORM
from trimaran.quantize.attention_blocks import LONG_FROM
from trimaran.quantize.candidates import Candidate
from trimaran.quantize.int8.openvino_graph import FORM
from trimaran.quantize.int8.search import SEARCH_VERSION
from trimaran.quantize.optimize import ATOL
from trimaran.quantize.packed_tokens import FORM as PACKED_FORM
from trimaran.quantize.proof import prove_against_parent
from trimaran.quantize.settings import MakerSettings

_SEARCHED = {"gates", "budget_s", "weight_levels"}


def to_precision(
    parent: Artifact, row: Candidate, settings: MakerSettings, *, store: Store, progress: Progress
) -> Artifact:
    """Make the candidate `row` of an exported fp32 graph, or of a fused one if the row needs it."""
    if parent.format != "onnx" or parent.precision != "fp32":
        raise UsageError(f"{row.name} is made from an fp32 ONNX graph, not from {parent.format} {parent.precision}.")
    if row.fused != (parent.recipe.step == "fused"):
        needed = "fused graph (`trimaran optimize`)" if row.fused else "plain exported graph"
        raise UsageError(f"{row.name} is made from the {needed}, found one of step {parent.recipe.step!r}.")
    if settings.half_outputs and row.precision != "fp16":
        raise UsageError(
            f"Only an FP16 graph can give FP16 outputs; {row.name} is {row.precision}.", hint="Use onnx-fp16."
        )
    options = {**dict(row.engine_options), **({"device": settings.device} if settings.device else {})}
    if reason := backend(row.backend).available():
        raise UnavailableError(f"{row.name} cannot be made here: {reason}.", hint=backend(row.backend).hint())

    def make(folder: Path) -> Draft:
        made = row.maker(parent, folder, settings)
        draft = parent.derive(
            folder,
            format=row.format,
            precision=row.precision,
            backend=row.backend,
            entry=made.entry,
            signature=_retyped(parent.signature, made.output_types),
            engine_options=options,
            execution_environment=settings.execution_environment,
            details={"candidate": row.name, **made.details},
        )
        limit = ATOL if row.precision == "fp32" else None
        proof = prove_against_parent(parent, draft, folder, limit=limit, threads=settings.threads)
        return draft.model_copy(update={"checks": (*made.checks, proof)})

    with progress.stage(row.name) as step:
        artifact = store.produce(recipe_of(parent, row, settings), make)
        step.outcome(f"{artifact.checks[-1]}, {artifact.size_bytes / 1e6:.0f} MB")
    return artifact


def _has_blocks(parent: Artifact, row: Candidate) -> bool:
    return row.backend == "onnxruntime" and row.default and parent.profile.sequence.maximum > LONG_FROM


def _retyped(signature: Signature, types: Mapping[str, DType]) -> Signature:
    outputs = tuple(spec.model_copy(update={"dtype": types.get(spec.name, spec.dtype)}) for spec in signature.outputs)
    return signature.model_copy(update={"outputs": outputs})


def recipe_of(parent: Artifact, row: Candidate, settings: MakerSettings) -> Recipe:
    return Recipe(
        step=row.name,
        parents=(parent.digest,),
        parameters={
            "engine_options": dict(row.engine_options),
            "calibration": digest_of_texts(settings.calibration) if row.calibrated else None,
            "execution_environment": settings.execution_environment,
            **({"device": settings.device} if settings.device else {}),
            **({"half_outputs": True} if settings.half_outputs else {}),
            **({"openvino_graph": FORM} if row.backend == "openvino" else {}),
            **({"packed_tokens": PACKED_FORM} if row.packed else {}),
            **({ATTENTION_BLOCKS: BLOCKS_FORM} if _has_blocks(parent, row) else {}),
            **(settings.model_dump(mode="json", include=_SEARCHED) if row.searched else {}),
            # A search decides by the metrics, so its result is made anew when one of them changes.
            **({"metrics": METRICS_VERSION, "search": SEARCH_VERSION} if row.searched else {}),
        },
        tools=tools("onnxruntime", "openvino", "nncf"),
    )
