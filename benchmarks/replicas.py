"""Three Tritons in containers behind one gateway, under load from OpenAI's client, while one dies, stops, freezes,
loses its model's process, returns, and while the next version is released and taken back.

    make containers && python benchmarks/replicas.py -o benchmarks/results/replicas.json      (7 minutes)

The model answers with the number of its version, 200 ms after a request: so each replica has a rate of its own, and an
answer of the wrong version is seen in the answer. Exit 1 when one of the claims does not hold.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import experiment
import openai
import pods
from pods import Bridge, podman

SECONDS_A_REQUEST = 0.2
CALLERS = 24
TRITONS = ("triton-0", "triton-1", "triton-2")
# A name that has the address of every Triton.
NAME = "tritons"
# How long the throughput of a phase is measured.
STEADY_S = 10.0


@dataclass
class Load:
    """Calls without end by OpenAI's client, without its own retries."""

    client: openai.AsyncOpenAI
    # Of each call: when it began, when it ended, and the version that answered or the failure.
    calls: list[tuple[float, float, str]] = field(default_factory=list)
    over: bool = False

    async def go_on(self) -> None:
        while not self.over:
            began_s = time.monotonic()
            try:
                answer = await self.client.embeddings.create(model="m", input="the dog")
                outcome = f"{answer.data[0].embedding[0]:.0f}"
            except openai.OpenAIError as error:
                outcome = repr(error)
            self.calls.append((began_s, time.monotonic(), outcome))

    def between(self, begin_s: float, end_s: float) -> list[tuple[float, float, str]]:
        return [call for call in self.calls if begin_s <= call[1] < end_s]


@contextlib.asynccontextmanager
async def load(gateway: str) -> AsyncIterator[Load]:
    async with openai.AsyncOpenAI(base_url=f"{gateway}/v1", api_key="none", max_retries=0, timeout=60) as client:
        running = Load(client)
        tasks = [asyncio.create_task(running.go_on()) for _ in range(CALLERS)]
        try:
            yield running
        finally:
            running.over = True
            await asyncio.gather(*tasks)


@dataclass
class World:
    network: Bridge
    gateway: str
    root: Path
    busy: Load
    phases: list[dict[str, Any]] = field(default_factory=list)

    async def all_ready(self, count: int = 3) -> None:
        await asyncio.to_thread(pods.wait_for, lambda: pods.ready(self.gateway) == count, f"{count} Tritons are ready")

    async def phase(self, what: str, act: Callable[[], object], *, healthy: int, settle_s: float) -> None:
        """Acts; every call from then on counts. The throughput is that of `STEADY_S` after `settle_s`."""
        began_s = time.monotonic()
        await asyncio.to_thread(act)
        await asyncio.sleep(settle_s)
        requests, steady_s = await asyncio.to_thread(pods.gauge, self.gateway, "replica_requests"), time.monotonic()
        await asyncio.sleep(STEADY_S)
        now = await asyncio.to_thread(pods.gauge, self.gateway, "replica_requests")
        end_s = time.monotonic()
        rate = len(self.busy.between(steady_s, end_s)) / (end_s - steady_s)
        given = sorted(int(now[address] - requests.get(address, 0.0)) for address in now)
        outcomes = Counter(outcome for _, _, outcome in self.busy.between(began_s, end_s))
        self.phases.append(
            {
                "phase": what,
                "outcomes": dict(outcomes),
                "healthy": healthy,
                "answers_per_s": rate,
                "requests_of_each": given,
            }
        )
        print(self.phases[-1], file=sys.stderr)

    async def release(self, what: str, steps: list[tuple[int, ...]], *, ends_with: str) -> None:
        """Restarts one Triton after the other with the versions of each step; the last answer must be `ends_with`."""
        began_s = time.monotonic()
        for served in steps:
            for number, name in enumerate(TRITONS):
                await asyncio.to_thread(podman, "stop", "-t", "30", self.network.full(name))
                pods.lay_out_versions(self.root / f"repository-{number}", *served, seconds=SECONDS_A_REQUEST)
                await asyncio.to_thread(podman, "start", self.network.full(name))
                await self.all_ready()
                await asyncio.sleep(2.5)
        end_s = time.monotonic()
        calls = self.busy.between(began_s, end_s)
        # From the first answer of the next version on, no call that begins may get another one.
        first_s = min((ended for _, ended, outcome in calls if outcome == ends_with), default=end_s)
        late = sum(1 for began, _, outcome in calls if began > first_s and outcome != ends_with)
        self.phases.append(
            {
                "phase": what,
                "outcomes": dict(Counter(outcome for _, _, outcome in calls)),
                "mixed": late,
                "ends with": calls[-1][2],
                "switched": calls[-1][2] == ends_with,
            }
        )
        print(self.phases[-1], file=sys.stderr)


def add_shares(phases: list[dict[str, Any]]) -> None:
    """To each phase with a throughput, its share of what the healthy replicas answer in the best phase of all three."""
    steady = [phase for phase in phases if "healthy" in phase]
    best = max(phase["answers_per_s"] for phase in steady if phase["healthy"] == len(TRITONS))
    fair = best * STEADY_S / len(TRITONS)
    for phase in steady:
        phase["share_of_healthy"] = phase["answers_per_s"] / (best * phase["healthy"] / len(TRITONS))
        phase["no replica idle"] = sum(number > fair / 2 for number in phase["requests_of_each"]) >= phase["healthy"]


@contextlib.asynccontextmanager
async def three_under_load(network: Bridge, root: Path) -> AsyncIterator[World]:
    """Three Tritons that answer with version 1, behind a gateway that is called without end."""
    for number, name in enumerate(TRITONS):
        pods.lay_out_versions(root / f"repository-{number}", 1, seconds=SECONDS_A_REQUEST)
        network.run(name, pods.CPU_IMAGE, root / f"repository-{number}", alias=NAME)
    pods.lay_out_versions(root / "seen", 1, 2, seconds=SECONDS_A_REQUEST)
    gateway = network.gateway(root / "seen", f"{NAME}:8001")
    pods.wait_for(lambda: pods.ask(f"{gateway}/readyz")[0] == 200, "the gateway is ready")
    async with load(gateway) as busy:
        world = World(network, gateway, root, busy)
        await world.all_ready()
        yield world


async def run(network: Bridge, root: Path) -> dict[str, Any]:
    full = [network.full(name) for name in TRITONS]
    async with three_under_load(network, root) as world:
        busy, gateway = world.busy, world.gateway
        await world.phase("all three answer", lambda: None, healthy=3, settle_s=5)
        await world.phase("one is killed", lambda: podman("kill", full[0]), healthy=2, settle_s=4)
        await world.phase("it returns", lambda: podman("start", full[0]), healthy=3, settle_s=20)
        await world.phase("one stops gracefully", lambda: podman("stop", "-t", "30", full[1]), healthy=2, settle_s=4)
        await world.phase("it returns", lambda: podman("start", full[1]), healthy=3, settle_s=20)
        await world.phase("the stubs of one die", lambda: network.kill_stubs(TRITONS[2]), healthy=3, settle_s=12)
        await world.phase("one freezes", lambda: podman("pause", full[2]), healthy=2, settle_s=8)
        await world.phase("it goes on", lambda: podman("unpause", full[2]), healthy=3, settle_s=15)
        await world.all_ready()
        await world.release("version 2 beside 1 on each, then 2 answers", [(1, 2)], ends_with="2")
        await world.release("version 1 alone on each: back", [(1,)], ends_with="1")
        await world.release("a rolling restart from 1 to 2", [(2,)], ends_with="2")
        await world.release("a rolling restart from 2 to 1", [(1,)], ends_with="1")
        readyz = pods.ask(f"{gateway}/readyz")[0]
    outcomes = Counter(outcome for _, _, outcome in busy.calls)
    phases = world.phases
    add_shares(phases)
    return {
        "schema": 1,
        "what": f"three Tritons in containers behind a gateway, {CALLERS} callers of OpenAI's client without retries",
        "seconds_a_request": SECONDS_A_REQUEST,
        "calls": len(busy.calls),
        "failed": {outcome: count for outcome, count in outcomes.items() if outcome not in ("1", "2")},
        "phases": phases,
        "claims": {
            "0 failed calls": set(outcomes) <= {"1", "2"},
            "0 mixed answers": not any(phase.get("mixed") for phase in phases),
            "each release ends with its version": all(phase.get("switched", True) for phase in phases),
            # In the first phase nothing has happened yet.
            "throughput within 10 % of the healthy replicas' share": all(
                phase.get("share_of_healthy", 1.0) >= 0.9 for phase in phases[1:]
            ),
            "no healthy replica idle": all(phase.get("no replica idle", True) for phase in phases),
            "the gateway is ready": readyz == 200,
        },
    }


def main() -> int:
    options = experiment.options(__doc__).parse_args()
    if reason := pods.why_not():
        sys.exit(reason)
    with tempfile.TemporaryDirectory() as folder, pods.bridge() as network:
        Path(folder).chmod(0o755)
        result = asyncio.run(run(network, Path(folder)))
    return experiment.finish(result, options.output)


if __name__ == "__main__":
    sys.exit(main())
