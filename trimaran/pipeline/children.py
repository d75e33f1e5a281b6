"""The stages that load heavy libraries, with JSON in and folders out, so that a child process can run them."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from trimaran.core.artifact import load_artifact
from trimaran.core.choices import Exporter
from trimaran.core.progress import SilentProgress
from trimaran.core.spec import ModelRef, ShapeProfile
from trimaran.core.store import Store
from trimaran.export.adopt import adopt
from trimaran.export.reference import reference
from trimaran.export.to_onnx import export
from trimaran.quantize.candidates import candidate
from trimaran.quantize.optimize import optimize
from trimaran.quantize.settings import MakerSettings
from trimaran.quantize.stage import to_precision


def import_libraries(names: list[str]) -> None:
    """So that what is asked of this child later need not wait for them."""
    for name in names:
        importlib.import_module(name)


def make_reference(ref: dict[str, Any], profile: dict[str, Any], store: str, force: bool) -> str:
    eager = reference(
        ModelRef.model_validate(ref),
        ShapeProfile.model_validate(profile),
        store=Store(Path(store), force=force),
        progress=SilentProgress(),
    )
    return str(eager.directory)


def adopt_graph(path: str, ref: dict[str, Any], profile: dict[str, Any], store: str, force: bool) -> str:
    graph = adopt(
        Path(path),
        store=Store(Path(store), force=force),
        progress=SilentProgress(),
        ref=ModelRef.model_validate(ref),
        profile=ShapeProfile.model_validate(profile),
    )
    return str(graph.directory)


def export_reference(
    eager: str, store: str, force: bool, atol: float, exporter: Exporter | None, threads: int | None
) -> str:
    graph = export(
        load_artifact(Path(eager)),
        store=Store(Path(store), force=force),
        progress=SilentProgress(),
        atol=atol,
        exporter=exporter,
        threads=threads,
    )
    return str(graph.directory)


def fuse(parent: str, store: str, force: bool, allow_partial: bool, threads: int | None) -> str:
    fused = optimize(
        load_artifact(Path(parent)),
        store=Store(Path(store), force=force),
        progress=SilentProgress(),
        allow_partial=allow_partial,
        threads=threads,
    )
    return str(fused.directory)


def make_candidate(parent: str, name: str, store: str, force: bool, settings: dict[str, Any]) -> str:
    artifact = to_precision(
        load_artifact(Path(parent)),
        candidate(name),
        MakerSettings.model_validate(settings),
        store=Store(Path(store), force=force),
        progress=SilentProgress(),
    )
    return str(artifact.directory)
