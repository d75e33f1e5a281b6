"""Eager PyTorch on the GPU beside the plans of `trimaran finish`, where torch and the trained model are there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trimaran.core import isolation
from trimaran.core.artifact import Artifact, load_artifact
from trimaran.core.devices import torch_lacks_cuda
from trimaran.core.spec import ShapeProfile
from trimaran.core.store import Store

_DEADLINE_S = 600.0


@dataclass(frozen=True)
class Eager:
    # None where it is not measured.
    artifact: Artifact | None
    # What the report says of it.
    note: str


def eager_on_gpu(model: str | None, profile: ShapeProfile, device: int, *, store: Store) -> Eager:
    if reason := torch_lacks_cuda():
        return Eager(None, f"Eager PyTorch was not measured on the GPU: {reason}.")
    if model is None:
        return Eager(None, "Eager PyTorch was not measured on the GPU: name the trained model with --model.")
    # They import transformers, which a machine that only finishes and serves does not have.
    from trimaran.export.locate import locate
    from trimaran.pipeline import children

    folder = isolation.run(
        children.make_reference,
        _DEADLINE_S,
        ref=locate(model).model_dump(mode="json"),
        profile=profile.model_dump(mode="json"),
        store=str(store.root),
        force=store.force,
    )
    return Eager(load_artifact(Path(folder)), f"Eager PyTorch ran on cuda:{device} in fp32 with TF32 off.")
