"""The server that the served scenarios of a suite ask: the user's own, or a Triton started for one candidate."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from trimaran.benchmarks.measure.runner import RaceEntry
from trimaran.benchmarks.scenarios import results
from trimaran.benchmarks.scenarios.footprint import SAME_ANSWER, distance, one_text
from trimaran.benchmarks.scenarios.results import ColdStart, ProcessStart, TextsUsed
from trimaran.benchmarks.scenarios.settings import ColdStartSettings, SuiteUnit
from trimaran.core.errors import ServerError, ToolError, ValidationError
from trimaran.core.scratch import ScratchFolder
from trimaran.model_repository.layout import lay_out
from trimaran.pipeline.plan import DeployPlan
from trimaran.pipeline.suite.load_driver import ServedTarget
from trimaran.runtime.text import Array, Text
from trimaran.serving.client import Client
from trimaran.serving.triton.server import Server, launch


class SuiteServer:
    """One server at a time. It is started when it is first needed, and kept until another candidate's is needed."""

    def __init__(self, plan: DeployPlan, own: ServedTarget | None) -> None:
        self._plan = plan
        # The user's own server, if there is one.
        self._own = replace(own, model=plan.name, task=plan.ref.task) if own else None
        self._folder = ScratchFolder("suite")
        self._running: tuple[str, Server] | None = None
        self._recognised: set[str] = set()

    def target(self, entry: RaceEntry, expected: Mapping[str, Array], text: Text) -> ServedTarget:
        """The server that serves this candidate.

        Raises UnavailableError without a Triton, ToolError for one that does not start, and ValidationError if the
        user's server gives other answers than this candidate: its figures would stand under the wrong name.
        """
        if self._own:
            if entry.name not in self._recognised:
                recognise(self._own, entry.name, expected, text)
                self._recognised.add(entry.name)
            return self._own
        if self._running is None or self._running[0] != entry.name:
            self.stop()
            self._running = entry.name, launch(self._repository(entry), drain=False)
        server = self._running[1]
        return ServedTarget(
            kind="triton",
            model=self._plan.name,
            task=self._plan.ref.task,
            urls={"grpc": server.grpc_url, "http": server.http_url},
            statistics=server.http_url,
        )

    def cold_starts(
        self,
        unit: SuiteUnit,
        entry: RaceEntry,
        head: Mapping[str, Any],
        used: TextsUsed,
        expected: Mapping[str, Array],
        text: Text,
    ) -> ColdStart | None:
        """Triton's start to the first correct answer over gRPC; None when the server is not ours to start."""
        if self._own:
            return None
        self.stop()
        assert isinstance(unit.asked, ColdStartSettings)
        starts: list[ProcessStart] = []
        cut = None
        reference = expected
        try:
            for _ in range(unit.asked.starts):
                begun_ns = time.perf_counter_ns()
                with launch(self._repository(entry), drain=False) as server, Client(server.grpc_url) as client:
                    ready_ns = time.perf_counter_ns()
                    answer = client.query(self._plan.name, [text])
                    elapsed_ns = time.perf_counter_ns() - begun_ns
                numbers = comparable(answer)
                # If the served answer has other numbers than the engine, later starts are compared with the first.
                reference = reference if reference.keys() == numbers.keys() else numbers
                apart = distance(reference, numbers)
                parts = {"server and model": ready_ns - begun_ns, "first answer": elapsed_ns - (ready_ns - begun_ns)}
                starts.append(
                    ProcessStart(elapsed_ns=elapsed_ns, parts_ns=parts, correct=apart <= SAME_ANSWER, distance=apart)
                )
        except (ServerError, ToolError) as error:
            cut = str(error)
        return results.ColdStart(
            **head,
            at="served",
            wire="grpc",
            target="triton",
            starts=tuple(starts),
            texts=one_text(used),
            cut=cut,
            cut_by="server" if cut else None,
        )

    def stop(self) -> None:
        if self._running:
            self._running[1].close()
            self._running = None

    def close(self) -> None:
        self.stop()
        self._folder.cleanup()

    def _repository(self, entry: RaceEntry) -> Path:
        repository = Path(self._folder.name) / entry.name
        if not repository.exists():
            lay_out(
                entry.artifact,
                repository=repository,
                name=self._plan.name,
                rows=entry.rows,
                threads=self._plan.config.threads,
            )
        return repository


def recognise(target: ServedTarget, candidate: str, expected: Mapping[str, Array], text: Text) -> None:
    """A Triton's answer to one text against this candidate's own, where both are numbers of the same kind."""
    if target.kind != "triton":
        return
    wire, url = next(iter(target.urls.items()))
    with Client(url, protocol=wire) as client:
        numbers = comparable(client.query(target.model, [text]))
    if numbers.keys() == expected.keys() and (apart := distance(expected, numbers)) > SAME_ANSWER:
        raise ValidationError(
            f"{url} does not serve {candidate}: its answer to the first text differs by {apart:.2g}.",
            hint="Serve the candidate that the suite chooses, or name the one that is served with --candidates.",
        )


def comparable(answer: Any) -> dict[str, Array]:
    """A served answer as numbers: vectors as they are, anything else by the numbers in it, in their order."""
    if isinstance(answer, np.ndarray):
        return {"embedding": answer}
    return {"answer": np.asarray(_numbers(answer), np.float64)}


def _numbers(value: Any) -> list[float]:
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return []
    if isinstance(value, (int, float, np.number)):
        return [float(value)]
    items = value.values() if isinstance(value, Mapping) else value
    return [number for item in items for number in _numbers(item)]
