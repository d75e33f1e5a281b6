"""Opens the contenders of a race, each in a child process of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from trimaran.core.environment import usable_cores
from trimaran.core.errors import TrimaranError
from trimaran.core.isolation import Worker
from trimaran.judging.probe import import_engine
from trimaran.judging.probe_process import ProbeProcess, probe_environment

if TYPE_CHECKING:
    from trimaran.benchmarks.measure.runner import RaceEntry


def opener_in_children(
    entries: Sequence[RaceEntry], threads: int, cores: Sequence[int], deadline_s: float, stack: contextlib.ExitStack
) -> Callable[[RaceEntry], ProbeProcess]:
    """What opens an entry in its child. The children have imported their libraries by then, as many at once as there
    are cores; they end with `stack`.
    """
    workers = {
        entry.name: stack.enter_context(
            Worker(environment=probe_environment(entry.artifact, threads, entry.environment))
        )
        for entry in entries
    }

    def import_libraries(entry: RaceEntry) -> None:
        with contextlib.suppress(TrimaranError):  # raised again when the contender is opened
            workers[entry.name].call(import_engine, deadline_s, entry.artifact.backend)

    with ThreadPoolExecutor(len(cores) or usable_cores()) as lanes:
        list(lanes.map(import_libraries, entries))
    return lambda entry: ProbeProcess(
        entry.artifact,
        threads=threads,
        deadline_s=deadline_s,
        cores=cores,
        options=entry.options,
        worker=workers[entry.name],
    )
