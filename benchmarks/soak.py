"""100,000 mixed requests through the gateway with OpenAI's client, while stubs and the server are killed in between.

    python benchmarks/soak.py model_repository minilm -o benchmarks/results/soak.json

Texts short and long, one and many, token ids, and requests that must be refused. Every answer is compared with the one
that the same text got alone before, every refusal with the status that it must have. Exit 1 when a claim does not hold.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from experiment import finish, options
from faults import FAULTS, repaired, repairs, strike
from load_calls import RequestOutcome, attempt, connected, gateway_before, growth, watch_memory
from recovery import STOPPED
from tokenizers import Tokenizer

from trimaran.core.corpus import shipped_texts
from trimaran.serving.client import AsyncClient
from trimaran.serving.gateway.vocabulary import tokenizer_file
from trimaran.serving.triton import daemon

TEXTS = 64
_PROGRESS_S = 5.0
# Of an ordinary text. Most of the time would go to the engine otherwise, and this is about what surrounds it.
_MOST_CHARACTERS = 120
_LONG_CHARACTERS = 100_000
# More texts than the gateway takes in one request.
_TOO_MANY = 3000


@dataclass(frozen=True)
class MixedRequest:
    given: Any
    # The right vectors, or the status of the refusal that is due.
    wanted: np.ndarray | str
    # In the place of the usual ones.
    model: str = ""
    key: str = ""


class Mix:
    """Requests of every kind, in an order that the seed decides."""

    # Of a hundred requests.
    SHARES: dict[str, int] = {
        "one text": 58, "8 texts": 12, "40 texts": 3, "token ids": 12, "a long text": 1,
        "an unknown model": 4, "no text": 4, "a wrong key": 4, "too many texts": 2,
    }  # fmt: skip

    def __init__(self, texts: list[str], wanted: np.ndarray, long_vector: np.ndarray, tokenizer: Any) -> None:
        self._texts, self._wanted, self._long_vector = texts, wanted, long_vector
        self._ids = [tokenizer.encode(text).ids for text in texts]
        self._random = random.Random(17)

    def requests(self, count: int) -> Iterator[tuple[str, MixedRequest]]:
        kinds = self._random.choices(list(self.SHARES), weights=list(self.SHARES.values()), k=count)
        return ((kind, self._request(kind)) for kind in kinds)

    def _request(self, kind: str) -> MixedRequest:
        first = self._random.randrange(len(self._texts))
        if kind == "token ids":
            return MixedRequest(self._ids[first], self._wanted[first : first + 1])
        if kind == "a long text":
            return MixedRequest(long_text(self._texts), self._long_vector)
        if kind == "no text":
            return MixedRequest([], "422")
        if kind == "too many texts":
            return MixedRequest(["a"] * _TOO_MANY, "413")
        size = {"8 texts": 8, "40 texts": 40}.get(kind, 1)
        rows = [(first + step) % len(self._texts) for step in range(size)]
        request = MixedRequest([self._texts[row] for row in rows], self._wanted[rows])
        if kind == "an unknown model":
            return replace(request, wanted="404", model="there-is-no-such-model")
        return replace(request, wanted="401", key="trk_guess") if kind == "a wrong key" else request


def long_text(texts: list[str]) -> str:
    return " ".join(itertools.islice(itertools.cycle(texts), 2 * _LONG_CHARACTERS // 40))[:_LONG_CHARACTERS]


class Soak:
    def __init__(self, target: Any, requests: Iterator[tuple[str, MixedRequest]], count: int) -> None:
        self.outcomes: dict[str, list[RequestOutcome]] = defaultdict(list)
        self.done, self.count = 0, count
        self.faults: Counter[str] = Counter()
        self.unrepaired = 0
        self._target, self._requests = target, requests
        self._begin = time.perf_counter()

    async def ask_all(self) -> None:
        for kind, request in self._requests:
            outcome = await self._ask(request)
            self.outcomes[kind].append(outcome)
            self.done += 1
            if outcome.status == "503":
                await asyncio.sleep(0.05)

    async def _ask(self, request: MixedRequest) -> RequestOutcome:
        options = {"model": request.model, "key": request.key}
        due = isinstance(request.wanted, str)
        wanted = np.empty((0, 0)) if isinstance(request.wanted, str) else request.wanted
        outcome = await attempt(self._target, request.given, wanted, self._begin, **options)
        # The refusal that is due is the right answer.
        return replace(outcome, improper=False) if due and outcome.status == request.wanted else outcome

    async def strike_often(self, state: daemon.Running, times: int) -> None:
        """Faults of every kind in turn, evenly over the requests. A stopped server would only wait."""
        faults = itertools.cycle(fault for fault in FAULTS if fault != STOPPED)
        for number, fault in zip(range(1, times + 1), faults, strict=False):
            while self.done < number * self.count / (times + 1):
                await asyncio.sleep(0.1)
            before = repairs(state)
            strike(state, fault)
            self.faults[fault] += 1
            self.unrepaired += not await repaired(state, before)

    async def tell(self) -> None:
        while True:
            await asyncio.sleep(_PROGRESS_S)
            every = [outcome for outcomes in self.outcomes.values() for outcome in outcomes]
            found = {name: sum(getattr(one, name) for one in every) for name in ("wrong", "lost", "improper")}
            rate = self.done / (time.perf_counter() - self._begin)
            line = f"{self.done:,} of {self.count:,}, {rate:.0f} a second, {sum(self.faults.values())} faults, {found}"
            print(f"\r{line}", end="", file=sys.stderr, flush=True)


async def run(asked: Any, state: daemon.Running, gateway: tuple[str, str], gateway_pid: int) -> dict[str, Any]:
    texts = [text for text in shipped_texts("judging") if len(text) <= _MOST_CHARACTERS][:TEXTS]
    url = f"127.0.0.1:{state.grpc_port}"
    async with AsyncClient(url, concurrency=1) as alone:
        wanted = np.concatenate([await alone.embed(asked.model, [text]) for text in texts])
        long_vector = await alone.embed(asked.model, [long_text(texts)])
        version = (await alone.versions())[asked.model]
    tokenizer = Tokenizer.from_file(str(tokenizer_file(asked.repository / asked.model / str(version))))
    requests = Mix(texts, wanted, long_vector, tokenizer).requests(asked.requests)
    samples: list[tuple[float, int]] = []
    began_s = time.perf_counter()
    # The gateway says first that there is no answer in time.
    async with connected("gateway", asked.model, url, gateway, timeout_s=4 * asked.timeout) as target:
        soak = Soak(target, requests, asked.requests)
        beside = [
            asyncio.create_task(work)
            for work in (soak.strike_often(state, asked.faults), soak.tell(), watch_memory([gateway_pid], samples))
        ]
        await asyncio.gather(*(soak.ask_all() for _ in range(asked.callers)))
        await beside[0]
        for task in beside:
            task.cancel()
        # What was repaired answers again.
        last = await attempt(target, texts[0], wanted[:1], 0.0)
    return verdict(asked, soak, last, samples, time.perf_counter() - began_s)


def verdict(
    asked: Any, soak: Soak, last: RequestOutcome, samples: list[tuple[float, int]], seconds: float
) -> dict[str, Any]:
    every = [outcome for outcomes in soak.outcomes.values() for outcome in outcomes]
    memory = growth(samples)
    claims = {
        "every request has an outcome": len(every) == asked.requests,
        "no wrong answer": not any(outcome.wrong for outcome in every),
        "no lost answer": not any(outcome.lost for outcome in every),
        "every refusal a proper status": not any(outcome.improper for outcome in every),
        "every fault repaired": soak.unrepaired == 0 and last.is_right,
        "the gateway's memory flat": memory["growth"] <= 0.05,
    }
    return {
        "schema": 1,
        "what": f"{asked.requests:,} mixed requests with {sum(soak.faults.values())} faults",
        "model": asked.model,
        "callers": asked.callers,
        "timeout_s": asked.timeout,
        "seconds": seconds,
        "statuses": {kind: dict(Counter(outcome.status for outcome in soak.outcomes[kind])) for kind in Mix.SHARES},
        "wrong": sum(outcome.wrong for outcome in every),
        "lost": sum(outcome.lost for outcome in every),
        "improper": sum(outcome.improper for outcome in every),
        "faults": dict(soak.faults),
        "longest_s": max(outcome.seconds for outcome in every),
        "gateway_memory": memory,
        "claims": claims,
    }


def main() -> int:
    parser = options(__doc__, served=True)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--faults", type=int, default=30)
    parser.add_argument("--callers", type=int, default=16)
    parser.add_argument(
        "--timeout", type=float, default=30.0, help="seconds for an answer; more where the machine may be suspended"
    )
    asked = parser.parse_args()
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        os.environ["TRIMARAN_HOME"] = str(home)
        state = daemon.serve_detached(asked.repository)
        stack.callback(daemon.stop)
        triton_url, limit = f"127.0.0.1:{state.grpc_port}", ("--timeout", str(asked.timeout))
        url, key, pid = stack.enter_context(gateway_before(asked.repository, triton_url, home, *limit))
        result = asyncio.run(run(asked, state, (url, key), pid))
    return finish(result, asked.output)


if __name__ == "__main__":
    sys.exit(main())
