"""Tiny exported encoders, their half and INT8 graphs, and engines of them: each is made once a test session."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from tests.export.zoo import saved_model
from tests.garbage import freeze_libraries
from trimaran.core.artifact import Artifact
from trimaran.core.corpus import shipped_texts
from trimaran.core.progress import SilentProgress
from trimaran.core.spec import Range, ShapeProfile
from trimaran.core.store import Store
from trimaran.export.locate import locate
from trimaran.export.reference import reference
from trimaran.export.to_onnx import export
from trimaran.quantize.candidates import candidate
from trimaran.quantize.settings import MakerSettings
from trimaran.quantize.stage import to_precision
from trimaran.quantize.tensorrt.engine import build_engine
from trimaran.quantize.tensorrt.engine_process import EngineOptions

QUIET = SilentProgress()
CALIBRATION = shipped_texts("calibration")[:24]
CAPABILITIES = ("8.6", "8.9", "12.0")
PROFILE = ShapeProfile(batch=Range(minimum=1, typical=2, maximum=4), sequence=Range(minimum=1, typical=16, maximum=48))
TASKS = {
    "bert": "embedding",
    "roberta": "embedding",
    "distilbert": "text-classification",
    "albert": "text-classification",
}
# Heads of 16: the smallest that TensorRT runs as one attention kernel.
_SIZES: dict[str, dict[str, Any]] = {
    "distilbert": {"dim": 32, "n_heads": 2},
    "albert": {"num_attention_heads": 2, "num_hidden_layers": 2},
}


class World:
    """Artifacts by family and candidate, in one store."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = Store(root / "store")
        self.exported = functools.cache(self._exported)
        self.graph = functools.cache(self._graph)
        self.engine = functools.cache(self._engine)

    def _exported(self, family: str, asked: str | None = None) -> Artifact:
        """With the head of the family's task, or of the one asked for."""
        freeze_libraries()
        task = asked or TASKS[family]
        folder = self.root / f"{family}-{task}"
        saved_model(folder, family, task, **_SIZES.get(family, {"num_attention_heads": 2}))
        eager = reference(locate(str(folder), task_name=task), PROFILE, store=self.store, progress=QUIET)
        return export(eager, store=self.store, progress=QUIET)

    def _graph(self, family: str, name: str) -> Artifact:
        settings = MakerSettings(calibration=CALIBRATION)
        return to_precision(self.exported(family), candidate(name), settings, store=self.store, progress=QUIET)

    def _engine(self, family: str, name: str) -> Artifact:
        return self.build(self.graph(family, name))

    def build(self, parent: Artifact, *, arguments: dict[str, Any] | None = None, **options: Any) -> Artifact:
        """For three compute capabilities unless told otherwise. `arguments` are build_engine's own."""
        asked = EngineOptions(**{"compute_capabilities": CAPABILITIES, **options})
        return build_engine(
            parent, asked, runtime="tensorrt_rtx", store=self.store, progress=QUIET, **(arguments or {})
        )
