"""What callers see when something dies under load: one stub, both stubs, the server; or when the server is stopped.

    python benchmarks/recovery.py model_repository minilm -o benchmarks/results/recovery.json

OpenAI's client asks through the gateway without a pause (`--target triton`: our client asks Triton). Every answer is
compared with the one that the same text got alone before. Exit 1 when a claim does not hold.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from experiment import finish, options
from faults import FAULTS, repaired, repairs, strike
from load_calls import LoadTarget, RequestOutcome, attempt, connected, gateway_before

from trimaran.core.corpus import shipped_texts
from trimaran.serving.client import AsyncClient
from trimaran.serving.triton import daemon

ONE_STUB, STOPPED = "one of two stubs killed", "the server stopped"
# Seconds: the longest answer with one stub gone, and until a right answer to what is asked after the fault.
LONGEST_ANSWER_S, BACK_S = 1.0, 2.0
# A server is stopped for this long before it counts as gone; a canary under way and the start come on top.
FOUND_S = 33.0
_REST_S = 2.0


@dataclass(frozen=True)
class Recovery:
    """What callers saw of one fault."""

    fault: str
    # From the fault to the first right answer to a request that was sent after it.
    back_s: float
    # From the fault until the watchdog counted the repair.
    repaired_s: float
    # The slowest request that was not answered yet at the fault, or sent before the repair.
    longest_s: float
    # Requests of that time by status.
    statuses: dict[str, int] = field(default_factory=dict)


class ConstantCallers:
    """Each asks again as soon as it is answered."""

    def __init__(self, target: LoadTarget, texts: list[str], wanted: np.ndarray) -> None:
        self.outcomes: list[RequestOutcome] = []
        self._target, self._texts, self._wanted = target, texts, wanted
        self._begin = time.perf_counter()

    async def ask_for_ever(self, index: int) -> None:
        while True:
            index = (index + 1) % len(self._texts)
            outcome = await attempt(self._target, self._texts[index], self._wanted[index : index + 1], self._begin)
            self.outcomes.append(outcome)
            # A caller that is refused does not hammer.
            await asyncio.sleep(0 if outcome.is_right else 0.01)

    async def after(self, state: daemon.Running, fault: str) -> Recovery:
        before = repairs(state)
        struck_s = strike(state, fault) - self._begin
        is_repaired = await repaired(state, before)
        repaired_s = time.perf_counter() - self._begin
        while not any(outcome.is_right and outcome.began_s > struck_s for outcome in self.outcomes):
            await asyncio.sleep(0.05)
        # What was sent before the repair has an answer by then, or is lost.
        await asyncio.sleep(_REST_S)
        hit = [outcome for outcome in self.outcomes if outcome.ended_s > struck_s and outcome.began_s < repaired_s]
        back_s = min(outcome.ended_s for outcome in self.outcomes if outcome.is_right and outcome.began_s > struck_s)
        return Recovery(
            fault,
            back_s - struck_s,
            repaired_s - struck_s if is_repaired else float("inf"),
            max(outcome.seconds for outcome in hit),
            dict(Counter(outcome.status for outcome in hit)),
        )


async def run(asked: Any, state: daemon.Running, gateway: tuple[str, str]) -> dict[str, Any]:
    texts = list(shipped_texts("judging")[:16])
    url = f"127.0.0.1:{state.grpc_port}"
    async with AsyncClient(url, concurrency=1) as alone:
        wanted = np.concatenate([await alone.embed(asked.model, [text]) for text in texts])
    recoveries: list[Recovery] = []
    async with connected(asked.target, asked.model, url, gateway) as target:
        callers = ConstantCallers(target, texts, wanted)
        asking = [asyncio.create_task(callers.ask_for_ever(number)) for number in range(asked.callers)]
        for fault in FAULTS:
            for number in range(asked.stops if fault == STOPPED else asked.kills):
                await asyncio.sleep(_REST_S)
                recoveries.append(await callers.after(state, fault))
                last = recoveries[-1]
                print(
                    f"{fault}, {number + 1}: right again after {last.back_s:.2f} s, repaired after "
                    f"{last.repaired_s:.2f} s, longest request {last.longest_s:.2f} s, {last.statuses}",
                    file=sys.stderr,
                )
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
    return verdict(asked, recoveries, callers.outcomes)


def verdict(asked: Any, recoveries: list[Recovery], outcomes: list[RequestOutcome]) -> dict[str, Any]:
    by_fault = {fault: [found for found in recoveries if found.fault == fault] for fault in FAULTS}
    one_stub, stopped = by_fault[ONE_STUB], by_fault[STOPPED]
    killed = [found for found in recoveries if found.fault not in (ONE_STUB, STOPPED)]
    # A caller of a server that is stopped gives up by itself.
    improper = [outcome for outcome in outcomes if outcome.improper and not (stopped and outcome.status == "504")]
    claims = {
        "no wrong answer": not any(outcome.wrong for outcome in outcomes),
        "no lost answer": not any(outcome.lost for outcome in outcomes),
        "every refusal a proper status": not improper,
        "one of two stubs killed: every request is answered": all(set(found.statuses) == {"200"} for found in one_stub),
        f"one of two stubs killed: no request waits above {LONGEST_ANSWER_S:g} s": all(
            found.longest_s <= LONGEST_ANSWER_S for found in one_stub
        ),
        f"both stubs or the server killed: right again within {BACK_S:g} s": all(
            found.back_s <= BACK_S for found in killed
        ),
        f"a stopped server is replaced within {FOUND_S + BACK_S:g} s": all(
            found.back_s <= FOUND_S + BACK_S for found in stopped
        ),
    }
    return {
        "schema": 2,
        "what": "what callers see of kills under load",
        "target": asked.target,
        "model": asked.model,
        "callers": asked.callers,
        "faults": [vars(found) for found in recoveries],
        "median_back_s": {
            fault: statistics.median(found.back_s for found in rows) for fault, rows in by_fault.items() if rows
        },
        "longest_s": {fault: max(found.longest_s for found in rows) for fault, rows in by_fault.items() if rows},
        "statuses": dict(Counter(outcome.status for outcome in outcomes)),
        "wrong": sum(outcome.wrong for outcome in outcomes),
        "lost": sum(outcome.lost for outcome in outcomes),
        "claims": claims,
    }


def main() -> int:
    parser = options(__doc__, served=True)
    parser.add_argument("--target", choices=["gateway", "triton"], default="gateway")
    parser.add_argument("--callers", type=int, default=8)
    parser.add_argument("--kills", type=int, default=5, help="of each kind")
    parser.add_argument("--stops", type=int, default=1, help="how often the server is stopped; half a minute each")
    asked = parser.parse_args()
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        os.environ["TRIMARAN_HOME"] = str(home)
        state = daemon.serve_detached(asked.repository)
        stack.callback(daemon.stop)
        gateway = ("", "")
        if asked.target == "gateway":
            url, key, _ = stack.enter_context(gateway_before(asked.repository, f"127.0.0.1:{state.grpc_port}", home))
            gateway = (url, key)
        result = asyncio.run(run(asked, state, gateway))
    return finish(result, asked.output, hidden=("faults",))


if __name__ == "__main__":
    sys.exit(main())
