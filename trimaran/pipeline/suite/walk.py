"""Runs the scenarios of a suite. Each result is stored as soon as it is there, and a run that is cut says why."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from trimaran.benchmarks.measure.ceiling import Ceiling, measure_ceilings
from trimaran.benchmarks.measure.harness import HarnessCheck, check_harness, measure_twins, warnings
from trimaran.benchmarks.measure.quiet import CpuWatch, noticed
from trimaran.benchmarks.measure.runner import Effort, RaceEntry
from trimaran.benchmarks.report.report import Report
from trimaran.benchmarks.report.report_files import write_reports
from trimaran.benchmarks.report.suite_board import SuiteBoard, board_for
from trimaran.benchmarks.scenarios.finals import uneven
from trimaran.benchmarks.scenarios.footprint import MAKERS, run_footprint
from trimaran.benchmarks.scenarios.in_process import Probes, run_in_process
from trimaran.benchmarks.scenarios.results import ScenarioResult
from trimaran.benchmarks.scenarios.settings import SuiteUnit
from trimaran.benchmarks.scenarios.suite import Suite
from trimaran.benchmarks.scenarios.suite_state import SuiteState, forget, save, suite_run
from trimaran.core.errors import ServerError, ToolError, TrimaranError, UnavailableError
from trimaran.core.pinning import cores_for
from trimaran.core.progress import Progress
from trimaran.core.samples import Shape
from trimaran.pipeline.plan import DeployPlan
from trimaran.pipeline.suite.load_driver import ServedTarget
from trimaran.pipeline.suite.served import run_served, unreached
from trimaran.pipeline.suite.server import SuiteServer
from trimaran.runtime.text import Text

TWINS_EFFORT = Effort(rounds=7, minimum_rounds=6, minimum_samples=10, minimum_time_s=0.2, budget_s=25.0)


class Walk:
    """The scenarios of one suite over one set of contenders and texts. `graph` is the exported fp32 graph."""

    def __init__(
        self,
        plan: DeployPlan,
        suite: Suite,
        report: Report,
        entries: Mapping[str, Sequence[RaceEntry]],
        texts: Sequence[Text],
        source: str,
        target: ServedTarget | None,
        graph: Path,
    ) -> None:
        self._graph = graph
        self._unlimited: tuple[str, ...] = ()
        self._plan, self._suite, self._report, self._entries = plan, suite, report, entries
        self._texts = texts
        self._server = SuiteServer(plan, target)
        threads = plan.config.threads
        self._probes = Probes(texts, source=source, threads=threads, cores=cores_for(threads))
        self._watch = CpuWatch(self._probes.cores)

    def run(self, state: SuiteState, progress: Progress) -> tuple[Report, Mapping[str, Path]]:
        board = board_for(self._suite.units, sys.stderr)
        running = ""
        try:
            if self._suite.harness and state.harness is None:
                running = "the harness's own check"
                state = self._kept(state.model_copy(update={"harness": self._harness(progress)}))
            if self._suite.ceiling and not state.ceilings:
                running = "the ceiling of the matrix products"
                state = self._kept(state.model_copy(update={"ceilings": self._ceilings(progress)}))
            with board.shown():
                # In-process scenarios come first, because an idle server beside them takes cores and memory.
                for unit in sorted(self._suite.units, key=lambda unit: unit.at == "served"):
                    running = unit.title
                    state = self._unit(unit, state, board)
                    if _stopped(state):
                        break
        except BaseException as error:
            self._written(state, cut=f"It ended during {running}: {str(error) or type(error).__name__}")
            raise
        finally:
            self._probes.close()
            self._server.close()
        if dead := _stopped(state):
            self._cut(state, dead)
        cuts = [f"{title_of(result)}: {result.cut}" for kept in state.found for result in kept.results if result.cut]
        if cuts:
            self._cut(state, ToolError(f"{len(cuts)} results did not get to their end. {cuts[0]}"))
        forget(self._plan.report)
        return self._written(state, cut=None)

    def _unit(self, unit: SuiteUnit, state: SuiteState, board: SuiteBoard) -> SuiteState:
        if kept := state.of(unit):
            board.end(unit, kept.results, kept=True)
            return state
        board.begin(unit)
        entries = self._entries_of(unit)
        if unit.at == "served":
            able = (entry for entry in entries if entry.artifact.format != "torch")
            measured = [result for entry in able if (result := self._served(unit, entry, board))]
        else:
            run = run_footprint if unit.asked.scenario in MAKERS else run_in_process
            measured = run(unit, entries, self._probes, step=board.step(unit))
        board.end(unit, measured)
        return self._kept(state.having(unit, tuple(measured)))

    def _entries_of(self, unit: SuiteUnit) -> list[RaceEntry]:
        named = [entry for name in unit.asked.candidates for entry in self._entries.get(name, ())]
        return list({entry.name: entry for entry in named}.values())

    def _kept(self, state: SuiteState) -> SuiteState:
        save(state, self._plan.report)
        return state

    def _harness(self, progress: Progress) -> HarnessCheck:
        with progress.stage("harness") as step:
            check = check_harness(cores=self._probes.cores, step=step)
            if chosen := self._entries["chosen"]:
                shape = self._plan.shapes[min(1, len(self._plan.shapes) - 1)]
                twins = measure_twins(
                    chosen[0],
                    shape,
                    threads=self._probes.threads,
                    cores=self._probes.cores,
                    effort=TWINS_EFFORT,
                    step=step,
                )
                check = check.model_copy(update={"twins": twins})
            step.outcome("null session, bare loop, A against A")
        return check

    def _ceilings(self, progress: Progress) -> tuple[Ceiling, ...]:
        """None if the matrix products cannot be read from the graph; the report then says why."""
        shapes = self._plan.shapes
        with progress.stage("ceiling") as step:

            def begin(shape: Shape) -> None:
                step.advance(shapes.index(shape), len(shapes), f"bare products at {shape}")

            try:
                ceilings = measure_ceilings(self._graph, shapes, threads=self._probes.threads, begin=begin)
            except TrimaranError as error:
                self._unlimited = (f"The ceiling was not measured: {error}",)
                return ()
            step.outcome(f"bare matrix products at {len(ceilings)} shapes")
        return ceilings

    def _served(self, unit: SuiteUnit, entry: RaceEntry, board: SuiteBoard) -> ScenarioResult | None:
        head = {
            "candidate": entry.name,
            "threads": self._probes.threads,
            "artifact": entry.artifact.digest,
            "rows": entry.rows,
        }
        used, expected = self._probes.known(entry)
        self._probes.close()
        if unit.asked.scenario == "cold-start":
            return self._server.cold_starts(unit, entry, head, used, expected, self._texts[0])
        target = self._server.target(entry, expected, self._texts[0])
        if unit.wire not in target.urls:
            return None
        try:
            return run_served(unit, target=target, head=head, texts=self._texts, used=used, step=board.step(unit))
        except UnavailableError:
            raise
        except TrimaranError as error:
            return unreached(error, unit, head, target)

    def _cut(self, state: SuiteState, error: TrimaranError) -> NoReturn:
        _, paths = self._written(state, cut=error.message)
        error.hint = f"What was found is kept and marked in {paths['json']}; --resume takes up the rest."
        raise error

    def _written(self, state: SuiteState, *, cut: str | None) -> tuple[Report, Mapping[str, Path]]:
        done = [kept for unit in self._suite.units if (kept := state.of(unit))]
        scenarios = tuple(result for kept in done for result in kept.results)
        noise = (uneven(scenarios), noticed(self._watch.others_share(), during="the scenarios"))
        report = self._report.model_copy(
            update={
                "scenarios": scenarios,
                "harness": state.harness,
                "ceilings": state.ceilings,
                "notes": (
                    *self._report.notes,
                    *self._unlimited,
                    *(warnings(state.harness) if state.harness else ()),
                    *filter(None, noise),
                ),
                "suite": suite_run(
                    state, digest=self._suite.digest, scenarios=tuple(unit.title for unit in self._suite.units), cut=cut
                ),
            }
        )
        return report, write_reports(report, self._plan.report)


def _stopped(state: SuiteState) -> ServerError | None:
    """The error of a server that died. The scenarios after it would fail too."""
    for kept in state.found:
        for result in kept.results:
            if result.cut_by == "server":
                return ServerError(f"{title_of(result)}: {result.cut}")
    return None


def title_of(result: ScenarioResult) -> str:
    wire = f" over {result.wire}" if result.wire else ""
    return f"{result.candidate}, {result.scenario}, {result.at}{wire}"
