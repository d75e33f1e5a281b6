"""Whether a candidate is true to eager PyTorch, and how its rows may share a batch without changing answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from trimaran.core.artifact import Artifact
from trimaran.core.choices import Rows
from trimaran.core.corpus import answer_context, digest_of_texts
from trimaran.core.distances import Outputs
from trimaran.core.environment import cpu_flags
from trimaran.core.errors import UsageError
from trimaran.core.instructions import products_by
from trimaran.core.isolation import Worker
from trimaran.core.metrics import METRICS_VERSION
from trimaran.core.progress import Step
from trimaran.core.proof_effort import ProofEffort
from trimaran.core.tasks import Gate, Task, task
from trimaran.core.tasks.task import BATCH_CHANGE
from trimaran.judging.gate_check import GateCheck, point_check
from trimaran.judging.invariance import NEIGHBOURS
from trimaran.judging.judgement import UNPADDED, WIDEST_FIRST, Quality
from trimaran.judging.labelled import OnData
from trimaran.judging.on_teacher import OnTeacher, against_teacher
from trimaran.judging.probe_process import ProbeProcess
from trimaran.judging.proof import Proof
from trimaran.judging.quality_intervals import intervals
from trimaran.runtime.text import Array, Text

LABELS = "label_agreement"
FLIPS = "batch_label_flips"
_SEED = 20


class AnsweringProbe(Protocol):
    """What judging needs of an opened candidate; `ProbeProcess` is one."""

    @property
    def peak_memory_bytes(self) -> int: ...

    def answers(self, texts: Sequence[Text], rows: Rows, *, alone: bool) -> dict[str, Array]: ...

    def among_neighbours(
        self, texts: Sequence[Text], rows: Rows, seed: int, effort: ProofEffort | None = None
    ) -> tuple[list[int], dict[str, Array]]: ...


def reference_answers(
    artifact: Artifact,
    texts: Sequence[Text],
    *,
    threads: int,
    environment: Mapping[str, str] | None = None,
    deadline_s: float = 300.0,
    options: Mapping[str, str] | None = None,
    worker: Worker | None = None,
) -> dict[str, Array]:
    """What eager PyTorch answers to each text alone, computed in a process of its own, or in `worker`.

    Its rows of one length go together: without padding that changes only float noise. Other engines run them alone.
    `options` open it in another way, such as on a GPU.
    """
    eager = artifact.format == "torch"
    _refuse_none(texts)
    with ProbeProcess(
        artifact, threads=threads, environment=environment, deadline_s=deadline_s, options=options, worker=worker
    ) as probe:
        requests = asked_texts(artifact, texts)
        return probe.answers(requests, "equal-length" if eager else "alone", alone=not eager)


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
    on_teacher: OnTeacher | None = None,
    open_probe: Callable[[], AbstractContextManager[AnsweringProbe]] | None = None,
    kinds: Sequence[str] = (),
    judged: int = 1,
    effort: ProofEffort | None = None,
) -> Quality:
    """Runs the candidate in its own process and holds it against the gates. A broken gate is a fact in the
    result; only a candidate that cannot run raises.

    `on_teacher`: the model is a student, and must also keep the level `distilled` against its teacher's answers.
    `kinds` are those of the texts. `judged` lossy candidates share the error of 5 %: with more candidates
    on the same texts, it is more likely that one of them passes by chance. `effort` says how many texts
    and tokens the batch certificate takes; without it the model's size decides.

    Policies are tried from the widest on until a text's answer does not move with its neighbours, and the answers are
    judged as that policy pads them. Rows that are padded even when alone have answers of their own, so such a policy
    must keep the other gates too: an engine that takes no mask reads padding as text. Only graphs that were made for it
    gain by `packed`, and are tried with it first: rows that are less alike share a call.
    """
    _refuse_none(texts)
    advance = step.advance if step else lambda done, total, what="": None
    row, context = task(artifact.task), answer_context(artifact)
    originals, texts = texts, asked_texts(artifact, texts)
    reference = row.judged(context, texts, reference_answers)
    limit = min((gate.limit for gate in gates if gate.metric == BATCH_CHANGE), default=math.inf)
    opened = (
        open_probe()
        if open_probe
        else ProbeProcess(artifact, threads=threads, environment=environment, deadline_s=deadline_s)
    )
    policies = [rows for rows in WIDEST_FIRST if rows != "packed" or artifact.details.get("packed")]
    if UNPADDED in artifact.details:
        policies = [rows for rows in policies if rows in ("equal-length", "alone")]
    changes: dict[Rows, float] = {}
    with opened as probe:
        for done, rows in enumerate(policies):
            advance(done, len(policies), f"rows {rows}")
            moved = moved_by_neighbours(probe, texts, rows, row, effort)
            changes[rows] = moved.change
            if rows != "alone" and not moved.change <= limit:
                continue
            answers = row.judged(context, texts, probe.answers(texts, rows, alone=True))
            proof = Proof(
                row, gates, reference, answers, kinds=kinds, judged=judged, lossy=artifact.precision != "fp32"
            )
            if rows not in ("packed", "rounded") or not proof.breaks_a_gate:
                break
        scores = (
            [
                on_data.data.score(
                    artifact,
                    on_data.eager,
                    probe.answers(on_data.data.texts, rows, alone=True),
                    alpha=proof.alpha,
                )
            ]
            if on_data
            else []
        )
        peak = probe.peak_memory_bytes
    metrics = {**row.fidelity(reference, answers), BATCH_CHANGE: moved.change}
    taught: tuple[GateCheck, ...] = ()
    if on_teacher:
        wanted = row.judged(context, texts, on_teacher.outputs)
        held = against_teacher(row, wanted, answers, kinds=kinds, judged=judged)
        metrics, taught = {**metrics, **held.metrics}, held.checks
    if row.metric(LABELS):
        metrics[FLIPS] = float(moved.flips)
    for score in scores:
        metrics |= score.figures()
    batch_checks = [point_check(gate, moved.change) for gate in gates if gate.metric == BATCH_CHANGE]
    return Quality(
        artifact=artifact.digest,
        task=artifact.task,
        metrics=metrics,
        rows=rows,
        changes=changes,
        neighbours=min(NEIGHBOURS, artifact.profile.batch.maximum - 1),
        checks=(*proof.checks, *batch_checks, *taught, *(score.check() for score in scores)),
        n=len(texts),
        n_batched=moved.texts,
        texts=digest_of_texts(originals),
        peak_memory_bytes=peak,
        intervals=intervals(row, reference, answers),
        bounds=proof.bounds,
        alpha=proof.alpha,
        judged=judged,
        kinds=proof.kinds,
        losses=proof.losses,
        metrics_version=METRICS_VERSION,
        vnni=products_by({**artifact.execution_environment, **(environment or {})}) == "vnni" if cpu_flags() else None,
    )


def asked_texts(artifact: Artifact, texts: Sequence[Text]) -> Sequence[Text]:
    """The texts as this model is asked them."""
    return task(artifact.task).asked(answer_context(artifact), texts)


class Moved(NamedTuple):
    """How far answers moved at worst among neighbours, how many labels flipped, and how many texts showed it."""

    change: float
    flips: int
    texts: int


def moved_by_neighbours(
    probe: AnsweringProbe, texts: Sequence[Text], rows: Rows, row: Task, effort: ProofEffort | None = None
) -> Moved:
    if rows == "alone":
        return Moved(0.0, 0, len(texts))
    indices, together = probe.among_neighbours(texts, rows, _SEED, effort)
    chosen = sorted(set(indices))
    positions = [chosen.index(index) for index in indices]
    alone = probe.answers([texts[index] for index in chosen], rows, alone=True)
    single = {name: array[positions] for name, array in alone.items()}
    labels = row.metric(LABELS)
    flips = int((labels.by_text(single, together) < 1).sum()) if labels else 0
    return Moved(row.change.value(single, together), flips, len(chosen))


def _refuse_none(texts: Sequence[Text]) -> None:
    if not texts:
        raise UsageError("Fidelity is judged on texts, and there are none.", hint="Give at least one text.")
