"""Whether a candidate is true to eager PyTorch, and how its rows may share a batch without changing answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from trimaran.answer_agreement import answer_agreement
from trimaran.artifact import Artifact, Check
from trimaran.backends import Array
from trimaran.benchmarks.invariance import NEIGHBOURS
from trimaran.benchmarks.probe_process import ProbeProcess
from trimaran.benchmarks.quality_intervals import intervals
from trimaran.benchmarks.report import WIDEST_FIRST, Quality
from trimaran.corpus import digest_of_texts
from trimaran.errors import UsageError
from trimaran.labelled import OnData
from trimaran.parity import Outputs, classification_change, same_labels
from trimaran.progress import Step
from trimaran.runtime.text import Text
from trimaran.spec import Rows
from trimaran.tasks import Gate, task

CHANGE = "batch_change"
FLIPS = "batch_label_flips"
_SEED = 20


class Answering(Protocol):
    """What judging needs of an opened candidate; `ProbeProcess` is one."""

    @property
    def peak_memory_bytes(self) -> int: ...

    def answers(self, texts: Sequence[Text], rows: Rows) -> dict[str, Array]: ...

    def among_neighbours(self, texts: Sequence[Text], rows: Rows, seed: int) -> tuple[list[int], dict[str, Array]]: ...


def reference_answers(
    artifact: Artifact,
    texts: Sequence[Text],
    *,
    threads: int,
    environment: Mapping[str, str] | None = None,
    deadline_s: float = 300.0,
) -> dict[str, Array]:
    """What eager PyTorch answers to each text alone, computed in a process of its own."""
    _refuse_none(texts)
    with ProbeProcess(artifact, threads=threads, environment=environment, deadline_s=deadline_s) as probe:
        return probe.answers(texts, "alone")


def assess(
    artifact: Artifact,
    reference_answers: Outputs,
    texts: Sequence[Text],
    *,
    gates: Sequence[Gate],
    threads: int,
    environment: Mapping[str, str] | None = None,
    deadline_s: float = 300.0,
    step: Step | None = None,
    on_data: OnData | None = None,
    open_probe: Callable[[], AbstractContextManager[Answering]] | None = None,
) -> Quality:
    """Runs the candidate in its own process and holds it against the gates. A broken gate is a fact in the
    result; only a candidate that cannot run raises.
    """
    _refuse_none(texts)
    advance = step.advance if step else lambda done, total, what="": None
    row = task(artifact.task)
    opened = (
        open_probe()
        if open_probe
        else ProbeProcess(artifact, threads=threads, environment=environment, deadline_s=deadline_s)
    )
    changes: dict[Rows, float] = {"alone": 0.0}
    counts: dict[Rows, int] = {"alone": len(texts)}
    flips: dict[Rows, int] = {"alone": 0}
    with opened as probe:
        advance(0, 3, "each text alone")
        alone = probe.answers(texts, "alone")
        metrics = row.fidelity(reference_answers, alone)
        metrics |= answer_agreement(artifact, texts, reference_answers, alone)
        for done, policy in enumerate(WIDEST_FIRST[:-1], start=1):
            advance(done, 3, f"rows {policy}")
            indices, answers = probe.among_neighbours(texts, policy, _SEED)
            same = {name: array[indices] for name, array in alone.items()}
            changes[policy] = row.change(same, answers)
            flips[policy] = int((same_labels(same, answers) < 1).sum()) if row.change is classification_change else 0
            counts[policy] = len(indices)
            if widest_rows(changes, gates) == policy:
                # What shares a call when padded may do so at equal lengths too; that would only cost time to see.
                break
        scores = (
            [on_data.data.score(artifact, on_data.eager, probe.answers(on_data.data.texts, "alone"))] if on_data else []
        )
        peak = probe.peak_memory_bytes
    rows = widest_rows(changes, gates)
    metrics[CHANGE] = changes[rows]
    if row.change is classification_change:
        metrics[FLIPS] = float(flips[rows])
    for score in scores:
        metrics |= score.figures()
    return Quality(
        artifact=artifact.digest,
        task=artifact.task,
        metrics=metrics,
        rows=rows,
        changes=changes,
        neighbours=min(NEIGHBOURS, artifact.profile.batch.maximum - 1),
        checks=(*(held_against(gate, metrics) for gate in gates), *(score.check() for score in scores)),
        n=len(texts),
        n_batched=counts[rows],
        texts=digest_of_texts(texts),
        peak_memory_bytes=peak,
        intervals=intervals(row.fidelity, reference_answers, alone),
    )


def widest_rows(changes: Mapping[Rows, float], gates: Sequence[Gate]) -> Rows:
    """The policy that lets most rows share a call while no answer changes by more than the gate allows."""
    limits = [gate.limit for gate in gates if gate.metric == CHANGE]
    limit = min(limits, default=math.inf)
    return next(rows for rows in WIDEST_FIRST if changes.get(rows, math.inf) <= limit or rows == "alone")


def held_against(gate: Gate, metrics: Mapping[str, float]) -> Check:
    value = metrics[gate.metric]
    # Infinity and NaN are no numbers in JSON; as words they keep to no limit.
    observed = value if math.isfinite(value) else "not finite"
    return Check(name=gate.metric, observed=observed, limit=gate.limit, comparison=gate.comparison)


def _refuse_none(texts: Sequence[Text]) -> None:
    if not texts:
        raise UsageError("Fidelity is judged on texts, and there are none.", hint="Give at least one text.")
