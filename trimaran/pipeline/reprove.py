"""Proves a laid-out INT8 model again, with the instructions of this CPU, from what travels with it.

The golden bundle has real requests with eager PyTorch's answers. The engine answers them here, and must keep the limits
that it was deployed with. Where the fp32 graph is at hand, the engine is also judged on all shipped texts, by bounds.
`serving.json` then names these instructions too.
"""

from __future__ import annotations

from pathlib import Path

from trimaran.benchmarks.report.wording import broken_words
from trimaran.core.digests import DIGESTS_FILE, list_digests
from trimaran.core.errors import QualityError, UsageError
from trimaran.core.instructions import ProductsBy, products_by
from trimaran.core.progress import Progress
from trimaran.core.proven_here import needs_proof
from trimaran.core.repository import models_in
from trimaran.core.serving_json import SERVING_FILE, Serving, read_serving, write_serving
from trimaran.core.spec import Frozen
from trimaran.core.store import Store, locked, write_atomically
from trimaran.core.tasks.task import WireTensors
from trimaran.judging.final_answers import final_answers
from trimaran.judging.gate_check import GateCheck
from trimaran.judging.golden import GOLDEN_FILE, Golden, read_golden
from trimaran.judging.golden_checks import group_checks, whole_checks
from trimaran.judging.wire_fidelity import wire_change
from trimaran.model_repository.versions import models_beside
from trimaran.pipeline.artifact_lookup import artifact_of_version, served_version
from trimaran.pipeline.proof_by_texts import ProofByTexts, batch_check, proof_by_texts


class Reproof(Frozen):
    name: str
    version: int
    products_by: ProductsBy
    # The limits of the golden bundle, each with what was observed here, and those that one prompt or kind breaks.
    checks: tuple[GateCheck, ...]
    # How far the answers are from those of the engine where it was proven first; None if the bundle has none.
    moved: float | None
    # Judging texts that proved the limits by bounds, and why there were none.
    texts: int = 0
    lacks: str = ""


def reprove_repository(repository: Path, name: str | None, *, store: Store, progress: Progress) -> tuple[Reproof, ...]:
    """Proves every served model that needs it, or the named one. Raises QualityError for a broken limit."""
    models = [model.name for model in models_in(repository) if model.task and model.served]
    if name is not None and name not in models:
        raise UsageError(
            f"{repository} has no model {name!r} that is served.", hint=f"There are: {', '.join(models) or 'none'}."
        )
    chosen = [name] if name is not None else models
    versions = [served_version(repository, model) for model in chosen]
    return tuple(
        _reprove(version, store=store, progress=progress)
        for version in versions
        if (version / SERVING_FILE).is_file() and needs_proof(read_serving(version))
    )


def _reprove(version: Path, *, store: Store, progress: Progress) -> Reproof:
    model, serving = version.parent, read_serving(version)
    if not (version / GOLDEN_FILE).is_file():
        raise UsageError(
            f"{version} has no golden bundle, so it cannot be proven here.", hint="Deploy the model on this machine."
        )
    golden = read_golden(version / GOLDEN_FILE)
    with progress.stage(f"proof of {model.name}") as step:
        proof, here = _judged(version, serving, golden, store)
        step.outcome("; ".join(map(str, proof.checks)))
    if broken := [check for check in proof.checks if not check.holds]:
        raise QualityError(
            f"{model.name} version {version.name} is not proven here: {'; '.join(map(_broken_words, broken))}.",
            hint="Deploy the model on this machine: other candidates may keep them.",
        )
    with locked(model.parent):
        # What `trimaran verify` compares with from now on.
        write_atomically(version / GOLDEN_FILE, golden.proven_by(here).to_json())
        # The engine as a model of its own is the same engine.
        for name in (*models_beside(model.parent, model.name, int(version.name)), model.name):
            _add_proof(model.parent / name / version.name, proof.products_by)
    return proof


def _broken_words(check: GateCheck) -> str:
    return broken_words(check) + (f" ({check.detail})" if check.detail else "")


def _add_proof(version: Path, products: ProductsBy) -> None:
    serving = read_serving(version)
    write_serving(version, serving.model_copy(update={"proven_on": (*serving.proven_on, products)}))
    if (version / DIGESTS_FILE).is_file():
        list_digests(version, model=version.parent.name, version=int(version.name))


def _judged(version: Path, serving: Serving, golden: Golden, store: Store) -> tuple[Reproof, WireTensors]:
    artifact = artifact_of_version(version, store)
    here = final_answers(artifact, golden.rows, threads=serving.threads, policy=serving.rows)
    checks = [*whole_checks(golden, here), *batch_check(artifact, serving, golden)]
    checks += [check for group in group_checks(golden, here).values() for check in group if not check.holds]
    moved = wire_change(golden.task, golden.numbers, golden.proven_tensors, here) if golden.proven else None
    # A limit that the requests refute needs no further texts.
    by_texts = (
        proof_by_texts(version, artifact, serving, golden, store=store)
        if all(check.holds for check in checks)
        else ProofByTexts()
    )
    proof = Reproof(
        name=version.parent.name,
        version=int(version.name),
        products_by=products_by(serving.execution_environment),
        checks=(*checks, *by_texts.checks),
        moved=moved,
        texts=by_texts.n,
        lacks=by_texts.lacks,
    )
    return proof, here
