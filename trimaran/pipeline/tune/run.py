"""`trimaran tune`: searches on a Triton of its own, writes the chosen setting, switches the running servers."""

from __future__ import annotations

import contextlib
import os
from datetime import UTC, datetime
from pathlib import Path

from trimaran.benchmarks.measure.quiet import CpuWatch
from trimaran.core.choices import TuneObjective
from trimaran.core.environment import capture
from trimaran.core.errors import RepositoryError, ServerError
from trimaran.core.progress import Progress
from trimaran.model_repository.check import problems_of_version
from trimaran.pipeline.tune.record import Tuning
from trimaran.pipeline.tune.search import Search
from trimaran.pipeline.tune.setting_files import Tunable, put_back, tunable, write_setting
from trimaran.pipeline.tune.settings import groupings, shapes, waits
from trimaran.pipeline.tune.trials import Trials
from trimaran.serving.triton import control, readiness
from trimaran.serving.triton.states import Running, running

CALLERS = 8
# Backends whose engine runs several calls at once.
SIDE_BY_SIDE = {"openvino"}
# Of the budget: a glance must be long enough for a few dozen requests, short enough that all settings get one.
_GLANCE_SHARE, _SHORTEST_S, _LONGEST_S = 1 / 120, 0.3, 2.0


def tune(
    repository: Path,
    name: str,
    *,
    objective: TuneObjective,
    budget_s: float,
    progress: Progress,
    callers: int = CALLERS,
) -> Tuning:
    """Measures settings of the version of `name` that is served, on a server of its own; changes nothing.

    Raises QualityError when the model as it is served now does not give the answers that were proven of it.
    """
    tuned = tunable(repository.absolute(), name)
    cpus = len(os.sched_getaffinity(0))
    watch = CpuWatch(sorted(os.sched_getaffinity(0)))
    with progress.stage("tune") as step, Trials(tuned, callers=callers) as trials:
        search = Search(
            present=tuned.setting,
            objective=objective,
            measure=trials.measure,
            forget=trials.forget,
            step=step,
            budget_s=budget_s,
            glance_s=min(_LONGEST_S, max(_SHORTEST_S, _GLANCE_SHARE * budget_s)),
        )
        search.begin()
        search.wave(lambda setting: shapes(setting, cpus, side_by_side=tuned.serving.backend in SIDE_BY_SIDE))
        search.wave(lambda setting: waits(setting, tuned.largest))
        search.wave(lambda setting: groupings(setting, tuned.largest, tuned.serving.rows))
        finalists = search.finals()
        chosen, reason = search.choice(finalists)
        others_share = watch.others_share()
        step.outcome(reason)
    return Tuning(
        model=name,
        version=tuned.version,
        task=tuned.serving.task,
        objective=objective,
        cpus=cpus,
        callers=callers,
        texts=len(tuned.golden.rows),
        budget_s=budget_s,
        spent_s=search.spent_s,
        others_share=others_share,
        present=tuned.setting,
        chosen=chosen,
        reason=reason,
        tried=search.tried(chosen, finalists),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        environment=capture(),
    )


def apply(repository: Path, tuning: Tuning, *, progress: Progress) -> tuple[int, ...]:
    """Writes the chosen setting into the repository and has the live servers of it load the model anew, which fails no
    request; returns their HTTP ports. All of it, or nothing: a setting that does not load is taken back.
    """
    repository = repository.absolute()
    tuned = tunable(repository, tuning.model)
    if tuned.version != tuning.version:
        raise RepositoryError(
            f"{tuning.model} serves version {tuned.version} now; version {tuning.version} was tuned.",
            hint="Run `trimaran tune` again.",
        )
    before = write_setting(tuned, tuning)
    switched: list[Running] = []
    try:
        if problems := problems_of_version(tuned.model, tuned.version):
            raise RepositoryError("; ".join(map(str, problems)), problems=problems)
        for server in running():
            if server.repository == repository and tuning.model in server.models:
                with progress.stage("switch") as step:
                    switched.append(server)
                    _load(tuned, server)
                    step.outcome(f"the server on port {server.http_port} serves {tuning.model} with the new setting")
    except (ServerError, RepositoryError) as error:
        put_back(before)
        for server in switched:
            with contextlib.suppress(ServerError):
                _load(tuned, server)
        raise RepositoryError(
            f"The setting {tuning.chosen} is taken back, {tuning.model} is served as before: {error.message}"
        ) from error
    return tuple(server.http_port for server in switched)


def _load(tuned: Tunable, server: Running) -> None:
    control.load(server.control, tuned.model.name)
    readiness.send_canary(server.http_port, tuned.model.name)
