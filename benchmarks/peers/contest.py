"""From the peers to one committed result: each judged and started from cold, then all timed side by side."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from race import Race, cold_starts, judge, prepare, timed, version_of
from results import PeerRow, PeersRun, TextSet
from server_load import loads
from table import Peer

import trimaran
from trimaran.benchmarks.measure.runner import Effort
from trimaran.benchmarks.scenarios.settings import ClosedLoopSettings
from trimaran.core.artifact import Recipe
from trimaran.core.corpus import digest_of_texts
from trimaran.core.environment import capture
from trimaran.core.errors import TrimaranError
from trimaran.core.progress import Progress
from trimaran.core.store import Store


@dataclass(frozen=True)
class Amount:
    """How much is measured: the race, the starts from cold, and the turns of load on those that are servers."""

    effort: Effort
    starts: int
    load: ClosedLoopSettings
    turns: int


def contest(
    peers: Sequence[Peer],
    race: Race,
    *,
    model: str,
    sets: tuple[TextSet, ...],
    amount: Amount,
    shelf: Store,
    progress: Progress,
) -> PeersRun:
    """A peer that cannot run here is a row with the reason, and the others go on.

    What each peer is judged to be is put on the shelf; a run that was cut takes it from there if the shelf allows.
    """
    rows: dict[str, PeerRow] = {}
    living: list[Peer] = []
    reference: np.ndarray | None = None
    for peer in peers:
        with progress.stage(peer.name) as step:
            try:
                prepare(peer, race)
                if reference is None:
                    reference, metrics = judge(peer, race, None)
                    row, known = _row(peer, race, metrics, reference, amount), False
                else:
                    row, known = _judged(peer, race, reference, amount, shelf)
                rows[peer.name] = row
                living.append(peer)
                distance, change = row.metrics["mean_cosine_distance"], row.metrics["batch_change"]
                step.outcome(f"{'reused, ' if known else ''}1−cos {distance:.2g}, batch {change:.2g}")
            except TrimaranError as error:
                if reference is None:
                    raise
                rows[peer.name] = _empty(peer).model_copy(update={"failure": error.message})
                step.outcome(f"cannot run here: {error}")
    with progress.stage("measure") as step:
        measured = timed(living, race, effort=amount.effort, step=step)
        step.outcome(f"{len(living)} peers, {len(race.texts)} sets of texts, interleaved")
    for outcome in measured.outcomes:
        # The log is on this machine only.
        failure = outcome.failure and re.sub(r" The log is \S+", "", outcome.failure)
        facts = {"memory_bytes": outcome.peak_memory_bytes or None, "failure": failure}
        rows[outcome.candidate] = rows[outcome.candidate].model_copy(update=facts)
    with progress.stage("load on servers") as step:
        unfailing = [peer for peer in living if rows[peer.name].failure is None]
        served = loads(unfailing, race, asked=amount.load, turns=amount.turns, step=step)
        step.outcome(f"{len({found.candidate for found in served})} servers, {amount.turns} turns")
    return PeersRun(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        trimaran=trimaran.__version__,
        model=model,
        environment=capture(),
        threads=race.threads,
        cores=race.cores,
        reference=peers[0].name,
        judging_texts=len(race.judging),
        judging_digest=digest_of_texts(race.judging),
        sets=sets,
        peers=tuple(rows.values()),
        measurements=measured.measurements,
        loads=served,
        others_share=measured.others_share,
    )


def _judged(peer: Peer, race: Race, reference: np.ndarray, amount: Amount, shelf: Store) -> tuple[PeerRow, bool]:
    recipe = Recipe(
        step="peer",
        parameters={
            "peer": [peer.name, peer.script, peer.options],
            "texts": digest_of_texts(race.judging),
            "threads": race.threads,
            "starts": amount.starts,
            "machine": capture().cpu,
        },
    )

    def found() -> PeerRow:
        _, metrics = judge(peer, race, reference)
        return _row(peer, race, metrics, reference, amount)

    row, known = shelf.remember(recipe, PeerRow, found)
    race.restrictions[peer.name] = row.execution_environment
    return row, known


def _row(peer: Peer, race: Race, metrics: dict[str, float], reference: np.ndarray, amount: Amount) -> PeerRow:
    return _empty(peer).model_copy(
        update={
            "metrics": metrics,
            "cold_starts_ns": cold_starts(peer, race, reference, times=amount.starts),
            "version": version_of(peer, race),
            "execution_environment": race.restrictions.get(peer.name, {}),
        }
    )


def _empty(peer: Peer) -> PeerRow:
    return PeerRow(name=peer.name, library=peer.library, version=None, describe=peer.describe)
