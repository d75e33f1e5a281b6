"""Whether a candidate is true to eager PyTorch, and how its rows may share a batch without changing answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from trimaran.core.artifact import Artifact, Check
from trimaran.core.backends import Array
from trimaran.core.choices import Rows
from trimaran.core.corpus import answer_context, digest_of_texts
from trimaran.core.distances import Outputs
from trimaran.core.errors import UsageError
from trimaran.core.progress import Step
from trimaran.core.tail import too_few_words
from trimaran.core.tasks import TAILS, Gate, Task, task
from trimaran.core.tasks.task import BATCH_CHANGE
from trimaran.judging.invariance import NEIGHBOURS
from trimaran.judging.judgement import WIDEST_FIRST, Quality
from trimaran.judging.labelled import OnData
from trimaran.judging.probe_process import ProbeProcess
from trimaran.judging.quality_intervals import intervals
from trimaran.runtime.text import Text

LABELS = "label_agreement"
FLIPS = "batch_label_flips"
_SEED = 20


class Answering(Protocol):
    """What judging needs of an opened candidate; `ProbeProcess` is one."""

    @property
    def peak_memory_bytes(self) -> int: ...

    def answers(self, texts: Sequence[Text], rows: Rows, *, alone: bool) -> dict[str, Array]: ...

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
        return probe.answers(texts, "alone", alone=True)


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

    Policies are tried from the widest on until a text's answer does not move with its neighbours, and the answers are
    judged as that policy pads them. Rows that are padded even when alone have answers of their own, so such a policy
    must keep the other gates too: an engine that takes no mask reads padding as text. Only graphs that were made for it
    gain by `packed`.
    """
    _refuse_none(texts)
    advance = step.advance if step else lambda done, total, what="": None
    row, context = task(artifact.task), answer_context(artifact)
    reference = row.judged(context, texts, reference_answers)
    limit = min((gate.limit for gate in gates if gate.metric == BATCH_CHANGE), default=math.inf)
    opened = (
        open_probe()
        if open_probe
        else ProbeProcess(artifact, threads=threads, environment=environment, deadline_s=deadline_s)
    )
    policies = [rows for rows in WIDEST_FIRST if rows != "packed" or artifact.details.get("packed")]
    changes: dict[Rows, float] = {}
    with opened as probe:
        for done, rows in enumerate(policies):
            advance(done, len(policies), f"rows {rows}")
            moved = _moved_by_neighbours(probe, texts, rows, row)
            changes[rows] = moved.change
            if rows != "alone" and not moved.change <= limit:
                continue
            answers = row.judged(context, texts, probe.answers(texts, rows, alone=True))
            metrics = row.fidelity(reference, answers)
            judged = [held_against(gate, metrics, texts=len(texts)).holds for gate in gates if gate.metric in metrics]
            if rows not in ("packed", "rounded") or all(judged):
                break
        scores = (
            [on_data.data.score(artifact, on_data.eager, probe.answers(on_data.data.texts, rows, alone=True))]
            if on_data
            else []
        )
        peak = probe.peak_memory_bytes
    metrics[BATCH_CHANGE] = moved.change
    if row.metric(LABELS):
        metrics[FLIPS] = float(moved.flips)
    for score in scores:
        metrics |= score.figures()
    return Quality(
        artifact=artifact.digest,
        task=artifact.task,
        metrics=metrics,
        rows=rows,
        changes=changes,
        neighbours=min(NEIGHBOURS, artifact.profile.batch.maximum - 1),
        checks=(
            *(held_against(gate, metrics, texts=len(texts)) for gate in gates),
            *(score.check() for score in scores),
        ),
        n=len(texts),
        n_batched=moved.texts,
        texts=digest_of_texts(texts),
        peak_memory_bytes=peak,
        intervals=intervals(row, reference, answers),
    )


class _Moved(NamedTuple):
    """How far answers moved at worst among neighbours, how many labels flipped, and how many texts showed it."""

    change: float
    flips: int
    texts: int


def _moved_by_neighbours(probe: Answering, texts: Sequence[Text], rows: Rows, row: Task) -> _Moved:
    if rows == "alone":
        return _Moved(0.0, 0, len(texts))
    indices, together = probe.among_neighbours(texts, rows, _SEED)
    single = probe.answers([texts[index] for index in indices], rows, alone=True)
    labels = row.metric(LABELS)
    flips = int((labels.by_text(single, together) < 1).sum()) if labels else 0
    return _Moved(row.change.value(single, together), flips, len(indices))


def held_against(gate: Gate, metrics: Mapping[str, float], *, texts: int) -> Check:
    value = metrics[gate.metric]
    # Infinity and NaN are no numbers in JSON; as words they keep to no limit.
    observed = value if math.isfinite(value) else "not finite"
    words = too_few_words(texts) if gate.metric in TAILS else ""
    return Check(
        name=gate.metric,
        observed=observed,
        limit=gate.limit,
        comparison=gate.comparison,
        detail=f"({words})" if words else "",
    )


def _refuse_none(texts: Sequence[Text]) -> None:
    if not texts:
        raise UsageError("Fidelity is judged on texts, and there are none.", hint="Give at least one text.")
