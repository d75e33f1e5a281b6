"""Judges a served version by bounds on all shipped judging texts, on the CPU that will serve it.

The golden requests that travel with a version are few: they can refute a gate and prove none. A proof needs eager
PyTorch's answers to all judging texts. The fp32 graph, which was proven equal to eager, gives them here.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from trimaran.core.artifact import Artifact
from trimaran.core.corpus import OWN_KIND, answer_context, kinds_of, readable_texts
from trimaran.core.errors import UsageError
from trimaran.core.serving_json import Serving
from trimaran.core.shadow_graph import shadow_graph
from trimaran.core.store import Store
from trimaran.core.tail import fewest_texts
from trimaran.core.tasks import Gate, task
from trimaran.core.tasks.task import BATCH_CHANGE
from trimaran.judging.gate_check import GateCheck, point_check
from trimaran.judging.golden import Golden
from trimaran.judging.probe_process import ProbeProcess
from trimaran.judging.proof import Proof
from trimaran.judging.quality import asked_texts, moved_by_neighbours, reference_answers
from trimaran.pipeline.plan import texts_for
from trimaran.runtime.text import Text

DEADLINE_S = 900.0


class ProofByTexts(NamedTuple):
    checks: tuple[GateCheck, ...] = ()
    # Judging texts that spoke.
    n: int = 0
    # Why the golden requests alone must do; empty where texts spoke.
    lacks: str = ""


def proof_by_texts(
    version: Path, artifact: Artifact, serving: Serving, golden: Golden, *, store: Store
) -> ProofByTexts:
    """Hold the engine, run as it is served, against the limits of the golden bundle on the shipped texts.

    A version that was judged on the user's own texts is not judged on others, because its proof is about those texts.
    """
    if OWN_KIND in golden.kinds():
        return ProofByTexts(lacks="it was proven on texts of your own")
    texts = _texts(artifact)
    if len(texts) < fewest_texts():
        return ProofByTexts(lacks=f"its tokenizer reads {len(texts)} of the shipped texts")
    try:
        graph = shadow_graph(version, store)
    except UsageError:
        return ProofByTexts(
            lacks="its fp32 graph is not on this machine (`trimaran deploy --shadow-graph` sends it along)"
        )
    requests = asked_texts(artifact, texts)
    reference = reference_answers(graph, texts, threads=serving.threads, deadline_s=DEADLINE_S)
    with _probe(artifact, serving) as probe:
        answers = probe.answers(requests, serving.rows, alone=True)
    row, context = task(artifact.task), answer_context(artifact)
    proof = Proof(
        row,
        [Gate(limit.metric, limit.comparison, limit.limit) for limit in golden.limits],
        row.judged(context, requests, reference),
        row.judged(context, requests, answers),
        kinds=kinds_of(texts),
        lossy=artifact.precision != "fp32",
    )
    return ProofByTexts(proof.checks, len(texts))


def batch_check(artifact: Artifact, serving: Serving, golden: Golden) -> tuple[GateCheck, ...]:
    """The certificate of the rows policy, here: each text among neighbours and alone, both padded as it is served.

    It needs no reference, so texts serve that the tokenizer hardly reads.
    """
    gates = [Gate(limit.metric, limit.comparison, limit.limit) for limit in golden.limits]
    gates = [gate for gate in gates if gate.metric == BATCH_CHANGE]
    if not gates or serving.rows == "alone":
        return ()
    texts = asked_texts(artifact, _texts(artifact) or texts_for(artifact.task, "judging", None))
    with _probe(artifact, serving) as probe:
        moved = moved_by_neighbours(probe, texts, serving.rows, task(artifact.task))
    detail = f"of {moved.texts} texts among neighbours"
    return tuple(point_check(gate, moved.change).model_copy(update={"detail": detail}) for gate in gates)


def _probe(artifact: Artifact, serving: Serving) -> ProbeProcess:
    environment = {**artifact.execution_environment, **serving.execution_environment}
    return ProbeProcess(artifact, threads=serving.threads, environment=environment, deadline_s=DEADLINE_S)


def _texts(artifact: Artifact) -> tuple[Text, ...]:
    texts = texts_for(artifact.task, "judging", None)
    return readable_texts(texts, artifact.directory / "tokenizer.json")
