"""Scenarios over the wire: a child process drives a live Triton or gateway, the parent reads Triton's own counters."""

from __future__ import annotations

import json
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec

from trimaran.benchmarks.scenarios import results
from trimaran.benchmarks.scenarios.finals import highest_rate, holds
from trimaran.benchmarks.scenarios.loadgen import Load, driver
from trimaran.benchmarks.scenarios.results import ClosedPoint, OpenPoint, ScenarioResult, ServerTime, TextsUsed, Wire
from trimaran.benchmarks.scenarios.settings import (
    ClosedLoopSettings,
    OfflineSettings,
    OpenLoopSettings,
    SingleStreamSettings,
    SuiteUnit,
)
from trimaran.core.errors import TrimaranError, UsageError
from trimaran.core.isolation import Worker
from trimaran.core.progress import Step
from trimaran.core.samples import Round
from trimaran.judging.stats import median
from trimaran.pipeline.suite.callers import ServerCallers
from trimaran.runtime.text import Text

_ROOM_S = 120.0
_STATISTICS_S = 5.0
Parameters = ParamSpec("Parameters")


@dataclass(frozen=True)
class ServedTarget:
    """A live server. `urls` by wire; `statistics` is Triton's http address, where it is known."""

    kind: Literal["triton", "gateway"]
    model: str
    task: str
    urls: Mapping[Wire, str]
    statistics: str | None = None
    key: str = field(default="", repr=False)


def triton_target(urls: Sequence[str]) -> ServedTarget:
    """A running Triton by its addresses. The suite fills in the model and its task."""
    by_wire: dict[Wire, str] = {}
    for url in urls:
        scheme, _, address = url.rpartition("://")
        if scheme not in ("grpc", "http") or not address:
            raise UsageError(f"A Triton's address is grpc://host:port or http://host:port, found {url!r}.")
        by_wire["grpc" if scheme == "grpc" else "http"] = address
    return ServedTarget(kind="triton", model="", task="", urls=by_wire, statistics=by_wire.get("http"))


def gateway_target(url: str, triton_urls: Sequence[str], *, key: str) -> ServedTarget:
    if triton_urls:
        raise UsageError("Give either --url or --gateway, not both.")
    return ServedTarget(kind="gateway", model="", task="", urls={"http": url}, key=key)


class Driver:
    """The child that makes the load; every call returns what was answered, whatever became of the server."""

    def __init__(self, target: ServedTarget, wire: Wire, texts: Sequence[Text]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="trimaran-load-")
        path = Path(self._folder.name) / "texts.json"
        path.write_text(json.dumps(list(texts)), encoding="utf-8")
        self._worker = Worker()
        try:
            self._callers = self._worker.hold(
                ServerCallers,
                _ROOM_S,
                kind=target.kind,
                url=target.urls[wire],
                wire=wire,
                model=target.model,
                task=target.task,
                texts_path=str(path),
                key=target.key,
            )
        except BaseException:  # nobody else knows the child yet, so none is left behind
            self.close()
            raise

    def load(
        self,
        method: Callable[Concatenate[ServerCallers, Parameters], dict[str, Any]],
        within_s: float,
        /,
        *arguments: Parameters.args,
        **keywords: Parameters.kwargs,
    ) -> Load:
        """`within_s` is what the load should take; far beyond it the child counts as hung."""
        answer = self._callers.call(method, within_s + _ROOM_S, *arguments, **keywords)
        return Load.model_validate(answer)

    def close(self) -> None:
        self._worker.close()
        self._folder.cleanup()


def run_served(
    unit: SuiteUnit,
    *,
    target: ServedTarget,
    head: Mapping[str, Any],
    texts: Sequence[Text],
    used: TextsUsed | None,
    step: Step | None = None,
) -> ScenarioResult:
    """One result; a server that dies in the middle leaves what it had answered, and `cut` says so."""
    assert unit.wire is not None
    facts = {**head, "at": "served", "wire": unit.wire, "target": target.kind, "texts": used}
    say = step.advance if step else lambda done, total, what="": None
    load = Driver(target, unit.wire, texts)
    try:
        return WAYS[unit.asked.scenario](unit.asked, facts, load, target, len(texts), say)
    finally:
        load.close()


def statistics(target: ServedTarget) -> ServerTime | None:
    """What Triton has counted for the model so far, over all its versions."""
    if target.statistics is None:
        return None
    url = f"http://{target.statistics}/v2/models/{target.model}/stats"
    try:
        with urllib.request.urlopen(url, timeout=_STATISTICS_S) as answer:
            rows = json.load(answer)["model_stats"]
    except (urllib.error.URLError, OSError, ValueError, KeyError):
        return None

    def total(name: str) -> int:
        return sum(int(row["inference_stats"][name].get("ns", 0)) for row in rows)

    return ServerTime(
        requests=sum(int(row["inference_stats"]["success"].get("count", 0)) for row in rows),
        queue_ns=total("queue"),
        compute_input_ns=total("compute_input"),
        compute_infer_ns=total("compute_infer"),
        compute_output_ns=total("compute_output"),
        executions=sum(int(row.get("execution_count", 0)) for row in rows),
    )


def between(before: ServerTime | None, after: ServerTime | None) -> ServerTime | None:
    if before is None or after is None:
        return None
    first, last = before.model_dump(), after.model_dump()
    return ServerTime(**{name: last[name] - first[name] for name in first})


Say = Callable[..., None]
Head = dict[str, Any]


def cut_of(found: Load, samples: int, limit_s: float, where: str) -> Head:
    """Why a load did not get to its end, for the head of its result; empty when it did."""
    if found.dead:
        return {"cut": f"The server stopped answering {where}. {found.dead}", "cut_by": "server"}
    if len(found.latencies_ns) < samples:
        said = f"It never reached its samples: {len(found.latencies_ns)} of {samples} {where}, in {limit_s:g} s."
        return {"cut": said, "cut_by": "samples"}
    return {}


def _single_stream(
    asked: SingleStreamSettings, facts: Head, load: Driver, target: ServedTarget, texts: int, say: Say
) -> ScenarioResult:
    rounds: list[Round] = []
    cut: Head = {}
    warmup = load.load(ServerCallers.warm_up, asked.limit_s, calls=asked.warmup)
    before = statistics(target)
    for number in range(asked.rounds):
        say(number, asked.rounds, f"round {number + 1}")
        limit_s = asked.limit_s / asked.rounds
        found = load.load(
            ServerCallers.single_stream, limit_s, samples=asked.samples, time_s=asked.time_s, limit_s=limit_s
        )
        # The warm-up is one tuple before the first round.
        rounds.append(Round(samples_ns=found.latencies_ns, warmup_ns=() if number else warmup.latencies_ns))
        cut = cut_of(found, asked.samples, limit_s, f"in round {number + 1}")
        if cut:
            break
    server = between(before, statistics(target))
    return results.SingleStream(**facts, driver=driver(), rounds=tuple(rounds), server=server, **cut)


def _offline(
    asked: OfflineSettings, facts: Head, load: Driver, target: ServedTarget, texts: int, say: Say
) -> ScenarioResult:
    used: TextsUsed | None = facts["texts"]
    passes: list[results.OfflinePass] = []
    cut: Head = {}
    load.load(ServerCallers.warm_up, asked.limit_s, calls=texts)
    for number in range(asked.rounds):
        say(number, asked.rounds, f"pass {number + 1}")
        found = load.load(ServerCallers.offline, asked.limit_s, callers=asked.callers)
        if cut := cut_of(found, 1, asked.limit_s, f"in pass {number + 1}"):
            break
        answered = len(found.latencies_ns)
        tokens = round(used.tokens * answered / texts) if used else 0
        passes.append(results.OfflinePass(elapsed_ns=found.elapsed_ns, texts=answered, tokens=tokens))
    return results.Offline(**facts, driver=driver(), passes=tuple(passes), **cut)


def _closed_loop(
    asked: ClosedLoopSettings, facts: Head, load: Driver, target: ServedTarget, texts: int, say: Say
) -> ScenarioResult:
    points: list[ClosedPoint] = []
    cut: Head = {}
    load.load(ServerCallers.warm_up, asked.limit_s, calls=texts)
    for done, callers in enumerate(asked.concurrency):
        say(done, len(asked.concurrency), f"{callers} callers")
        limit_s = asked.limit_s / len(asked.concurrency)
        found = load.load(
            ServerCallers.closed_loop,
            limit_s,
            callers=callers,
            samples=asked.samples,
            time_s=asked.time_s,
            limit_s=limit_s,
        )
        points.append(
            ClosedPoint(
                concurrency=callers,
                elapsed_ns=found.elapsed_ns,
                latencies_ns=found.latencies_ns,
                failures=found.failures,
            )
        )
        if cut := cut_of(found, asked.samples, limit_s, f"at {callers} callers"):
            break
    return results.ClosedLoop(**facts, points=tuple(points), **cut)


def _open_loop(
    asked: OpenLoopSettings, facts: Head, load: Driver, target: ServedTarget, texts: int, say: Say
) -> ScenarioResult:
    alone = load.load(ServerCallers.warm_up, asked.limit_s, calls=texts)
    result = results.OpenLoop(**facts, driver=driver(), budget_ms=asked.budget_ms, share=asked.share, points=())
    if alone.dead or not alone.latencies_ns:
        return result.model_copy(update=cut_of(alone, 1, asked.limit_s, "before the first rate"))
    # The median: a first call that waits for its connection says nothing about the others.
    one_caller = 1e9 / median(alone.latencies_ns)
    total = len(asked.shares_of_one_caller) + asked.refine

    def tried(result: results.OpenLoop, rate: float) -> results.OpenLoop:
        say(len(result.points), total, f"{rate:.0f} requests/s")
        possible = max(1, int(rate * asked.limit_s / total))
        found = load.load(
            ServerCallers.open_loop,
            asked.limit_s,
            callers=asked.callers,
            rate_per_s=rate,
            samples=min(asked.samples, possible),
            time_s=min(asked.time_s, asked.limit_s / total),
            seed=len(result.points),
        )
        point = OpenPoint(
            rate_per_s=rate,
            elapsed_ns=found.elapsed_ns,
            latencies_ns=found.latencies_ns,
            failures=found.failures,
        )
        needed = asked.samples if possible < asked.samples else 0
        cut = cut_of(found, needed, asked.limit_s / total, f"at {rate:.3g} requests/s")
        return result.model_copy(update={"points": (*result.points, point), **cut})

    for share in asked.shares_of_one_caller:
        result = tried(result, one_caller * share)
        if result.cut or not holds(result.points[-1], result):
            break
    for _ in range(asked.refine):
        rate = between_rates(result)
        if result.cut or rate is None:
            break
        result = tried(result, rate)
    return result.model_copy(update={"points": tuple(sorted(result.points, key=lambda point: point.rate_per_s))})


def between_rates(result: results.OpenLoop) -> float | None:
    """Half-way between the highest rate that held and the lowest that did not; None when none broke the budget."""
    broken = min((point.rate_per_s for point in result.points if not holds(point, result)), default=None)
    held = highest_rate(result)
    return None if broken is None else ((held.rate_per_s if held else 0.0) + broken) / 2


WAYS: dict[str, Callable[[Any, Head, Driver, ServedTarget, int, Say], ScenarioResult]] = {
    "single-stream": _single_stream,
    "offline": _offline,
    "closed-loop": _closed_loop,
    "open-loop": _open_loop,
}


def unreached(error: TrimaranError, unit: SuiteUnit, facts: Mapping[str, Any], target: ServedTarget) -> ScenarioResult:
    """An empty result for a server that could not be asked at all."""
    kinds: dict[str, Callable[..., ScenarioResult]] = {
        "single-stream": lambda **head: results.SingleStream(**head, rounds=()),
        "offline": lambda **head: results.Offline(**head, passes=()),
        "closed-loop": lambda **head: results.ClosedLoop(**head, points=()),
        "open-loop": lambda **head: results.OpenLoop(
            **head, budget_ms=getattr(unit.asked, "budget_ms", 0.0), points=()
        ),
    }
    return kinds[unit.asked.scenario](
        **facts, at="served", wire=unit.wire, target=target.kind, cut=str(error), cut_by="server", driver="none"
    )
