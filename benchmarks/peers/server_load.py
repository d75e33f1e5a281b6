"""Load on the peers that are servers: callers of one text each, by trimaran's own driver, the servers in turn."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np
from race import PeerProcess, Race, opened
from table import Peer

from trimaran.benchmarks.scenarios.results import ClosedLoop
from trimaran.benchmarks.scenarios.settings import ClosedLoopSettings, SuiteUnit
from trimaran.core.errors import TrimaranError
from trimaran.core.progress import Step
from trimaran.pipeline.suite.load_driver import ServedTarget
from trimaran.pipeline.suite.served import run_served


def loads(
    peers: Sequence[Peer], race: Race, *, asked: ClosedLoopSettings, turns: int, step: Step | None = None
) -> tuple[ClosedLoop, ...]:
    """A sweep of callers a turn and server, in random order; a peer that is no server has none.

    A server that does not answer is a result without points that says why.
    """
    found: list[ClosedLoop] = []
    generator = np.random.default_rng(0)
    with ExitStack() as stack:
        servers: list[tuple[Peer, PeerProcess, ServedTarget]] = []
        for peer in (peer for peer in peers if peer.served):
            try:
                process = stack.enter_context(opened(peer, race))
                process.rest()
                servers.append((peer, process, _target(process.place())))
            except TrimaranError as error:
                found.append(_unanswered(peer, race, error))
        for turn in range(turns):
            for index in generator.permutation(len(servers)):
                peer, process, target = servers[index]
                if step:
                    step.advance(len(found), turns * len(servers), f"turn {turn + 1}, {peer.name}")
                try:
                    found.append(_sweep(peer, race, target, asked))
                    process.rest()
                except TrimaranError as error:
                    found.append(_unanswered(peer, race, error))
    return tuple(found)


def _target(place: dict[str, str]) -> ServedTarget:
    return ServedTarget(kind=place["kind"], model=place["model"], task="embedding", urls={place["wire"]: place["url"]})  # type: ignore[arg-type,dict-item]


def _sweep(peer: Peer, race: Race, target: ServedTarget, asked: ClosedLoopSettings) -> ClosedLoop:
    unit = SuiteUnit(asked=asked, at="served", wire=next(iter(target.urls)))
    head = {"candidate": peer.name, "threads": race.threads}
    result = run_served(unit, target=target, head=head, texts=race.callers_texts, used=None)
    assert isinstance(result, ClosedLoop)
    return result


def _unanswered(peer: Peer, race: Race, error: TrimaranError) -> ClosedLoop:
    return ClosedLoop(
        candidate=peer.name, at="served", threads=race.threads, points=(), cut=error.message, cut_by="server"
    )
