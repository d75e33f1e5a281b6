"""Exports a trained model in a child process: eager PyTorch as an artifact, and its graph as proven ONNX."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from trimaran.core.artifact import MANIFEST, Artifact, load_artifact
from trimaran.core.choices import Exporter
from trimaran.core.config import DeployConfig
from trimaran.core.config_pbtxt import CONFIG_FILE
from trimaran.core.isolation import Worker
from trimaran.core.progress import Progress
from trimaran.core.proof_effort import LARGE
from trimaran.core.spec import ModelRef, ShapeProfile
from trimaran.core.store import Store
from trimaran.export.adopt import adopt, onnx_file_of
from trimaran.export.reference import reference
from trimaran.export.validate import ATOL
from trimaran.export.whiten import lines_of, whiten
from trimaran.pipeline import children
from trimaran.pipeline.artifact_lookup import find_artifact
from trimaran.pipeline.assumptions import assumptions
from trimaran.pipeline.plan import DeployRun, find_model, graph_of

EXPORT_DEADLINE_S = 1800.0


class Exported(NamedTuple):
    # Eager PyTorch: a pointer to the user's weights, with the tokenizer. Of a model without weights, its graph.
    reference: Artifact
    # The same computation in ONNX, proven equal.
    graph: Artifact


def export_planned(run: DeployRun, *, when_loaded: Callable[[Artifact], None]) -> Exported:
    """The export of a deployment, on the threads that other work beside it leaves.

    `when_loaded` is called with the reference as soon as it exists, before the graph is traced. Of a large model it is
    called after the export: memory would hold the weights of both at once.
    """
    plan = run.plan
    if plan.graph:
        adopted = adopt_graph(plan.graph, plan.ref, plan.profile, store=run.store, progress=run.progress)
        when_loaded(adopted)
        return Exported(adopted, adopted)
    large = plan.effort is LARGE
    exported = export_model(
        plan.ref,
        plan.profile,
        store=run.store,
        progress=run.progress,
        exporter=plan.config.exporter,
        threads=plan.eager_threads,
        when_loaded=None if large else when_loaded,
    )
    if large:
        when_loaded(exported.reference)
    return exported


def export_configured(config: DeployConfig, *, atol: float, store: Store, progress: Progress) -> Artifact:
    """`trimaran export`: the proven graph of the model that the config names."""
    ref = find_model(config)
    profile = config.profile_for(ref)
    for note in assumptions(config, ref, profile):
        progress.note(note)
    if graph := graph_of(config):
        return adopt_graph(graph, ref, profile, store=store, progress=progress)
    return export_model(ref, profile, store=store, progress=progress, atol=atol, exporter=config.exporter).graph


def adopt_graph(path: Path, ref: ModelRef, profile: ShapeProfile, *, store: Store, progress: Progress) -> Artifact:
    """The graph of another exporter as an artifact. Without trained weights it is its own reference."""
    with Worker() as worker, progress.stage("export") as step:
        folder = worker.call(
            children.adopt_graph,
            EXPORT_DEADLINE_S,
            path=str(path),
            ref=ref.model_dump(mode="json"),
            profile=profile.model_dump(mode="json"),
            store=str(store.root),
            force=store.force,
        )
        adopted = load_artifact(Path(folder))
        step.outcome(f"{ref.family}, {ref.task}, {path.name} as it was given, {adopted.checks[0]}")
    return adopted


def made_before(reference: str, *, store: Store, repository: Path) -> Artifact | None:
    """What was deployed under this name, or the artifact in this folder; None for a trained model."""
    if (Path(reference) / MANIFEST).is_file():
        return store.open(reference)
    if not Path(reference).exists() and (repository / reference / CONFIG_FILE).is_file():
        return find_artifact(reference, store=store, repository=repository).artifact
    return None


def open_graph(reference: str, *, store: Store, progress: Progress) -> Artifact:
    """An artifact by folder, name or digest, or an ONNX file of another exporter, which becomes one."""
    folder = Path(reference)
    if not (folder / MANIFEST).is_file() and (file := onnx_file_of(reference)):
        return adopt(file, store=store, progress=progress)
    return store.open(reference)


def whiten_configured(config: DeployConfig, corpus: Path, output: Path, *, store: Store, progress: Progress) -> Path:
    """`trimaran whiten`: a whitening over whole vectors, of which `dimensions` are kept."""
    whole = config.model_copy(update={"dimensions": None})
    ref = find_model(whole)
    eager = reference(ref, whole.profile_for(ref), store=store, progress=progress)
    return whiten(eager, lines_of(corpus), output, dimensions=config.dimensions, progress=progress)


def export_model(
    ref: ModelRef,
    profile: ShapeProfile,
    *,
    store: Store,
    progress: Progress,
    atol: float = ATOL,
    exporter: Exporter | None = None,
    threads: int | None = None,
    when_loaded: Callable[[Artifact], None] | None = None,
) -> Exported:
    # Both steps in one child: loading the libraries takes longer than exporting a small model.
    with Worker() as worker, progress.stage("export") as step:
        loaded = worker.call(
            children.make_reference,
            EXPORT_DEADLINE_S,
            ref=ref.model_dump(mode="json"),
            profile=profile.model_dump(mode="json"),
            store=str(store.root),
            force=store.force,
        )
        eager = load_artifact(Path(loaded))
        if when_loaded:
            when_loaded(eager)
        traced = worker.call(
            children.export_reference,
            EXPORT_DEADLINE_S,
            eager=loaded,
            atol=atol,
            exporter=exporter,
            threads=threads,
            store=str(store.root),
            force=store.force,
        )
        graph = load_artifact(Path(traced))
        step.outcome(f"{ref.family}, {ref.task}, {graph.checks[0]}")
    return Exported(eager, graph)
