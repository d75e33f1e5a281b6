"""A prepared repository of tiny graphs, written in seconds: as `deploy --target` leaves it, without an export."""

from __future__ import annotations

import itertools
from pathlib import Path

from tests.tiny import PROFILE, tiny_artifact
from trimaran.core.artifact import file_entries
from trimaran.core.environment import capture
from trimaran.core.store import link_or_copy, write_atomically
from trimaran.core.tasks import Gate
from trimaran.judging.final_answers import final_answers
from trimaran.judging.golden import golden_rows, make_golden
from trimaran.judging.prepared import (
    PREPARED_FILE,
    PREPARED_FOLDER,
    Prepared,
    PreparedCandidate,
    TargetBuild,
    write_judging,
)
from trimaran.judging.quality import reference_answers
from trimaran.model_repository.layout import lay_out

TASKS = {"tiny": "embedding", "classes": "text-classification"}
GATES = {
    "embedding": (Gate("mean_cosine_distance", "<=", 0.2), Gate("batch_change", "<=", 1e-5)),
    "text-classification": (Gate("mean_probability_change", "<=", 0.2), Gate("batch_change", "<=", 1e-5)),
}
# As many as a mean within 0.2 is proven with.
_WORDS = ("the", "cat", "dog", "sat", "ran", "good")
TEXTS = tuple(map(" ".join, itertools.product(_WORDS, repeat=3)))
NAMES = ("onnx-fp16", "onnx-int8-qdq")


def prepare_by_hand(root: Path, repository: Path, name: str) -> None:
    """The tiny graph plays every candidate, and eager PyTorch as well."""
    task = TASKS[name]
    artifact = tiny_artifact(root / "store", task=task)
    rows = golden_rows(task, TEXTS[:8], {"mask_token": ""}, prompts=())
    answers = final_answers(artifact, rows, threads=1)
    golden = make_golden(
        task=task, model=name, reference=artifact.digest, numbers=artifact.signature.outputs[0].name,
        rows=rows, wanted=answers, proven=answers, gates=GATES[task],
    )  # fmt: skip
    scratch = root / f"beside-{name}"
    inner = scratch / PREPARED_FOLDER
    inner.mkdir(parents=True)
    write_judging(inner, TEXTS, reference_answers(artifact, TEXTS, threads=1))
    for candidate, path in itertools.product(NAMES, artifact.directory.iterdir()):
        link_or_copy(path, inner / "candidates" / candidate / path.name)
    build = TargetBuild(target="8.6", builder="by hand", built=True)
    prepared = Prepared(
        created="2026-11-18T00:00:00+00:00", trimaran="0", model=name, task=task, family="bert", level="strict",
        gates=GATES[task], objective="latency", profile=PROFILE, environment=capture(), command=("by hand",),
        targets=("8.6",), chosen=NAMES[0], headline="Prepared by hand.", files=file_entries(inner),
        candidates=tuple(
            PreparedCandidate(name=row, precision="fp16", verdict=verdict, reason="By hand.", builds=(build,))
            for row, verdict in zip(NAMES, ("chosen", "passed"), strict=True)
        ),
    )  # fmt: skip
    write_atomically(scratch / PREPARED_FILE, prepared.to_json())
    for_container = artifact.model_copy(update={"backend": "onnxruntime_tensorrt"}).at(artifact.directory)
    lay_out(for_container, repository=repository, name=name, rows="padded", threads=1, golden=golden, beside=scratch)
