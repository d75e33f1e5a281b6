"""What the shadow check costs: CPU time of the server for each answered text, without it and at 0.1 %.

    python benchmarks/shadow.py REPOSITORY NAME [-o result.json]

CPU time is counted: foreign work on the machine moves a throughput by far more than the one percent that is promised.
The time of every process of the server counts, the shadow's too. Turns are interleaved. At 0.1 % few texts are checked
in a turn, so a second server checks a hundred times as many: the cost of one check is taken there. What a caller waits
for is timed too; only that needs an otherwise idle machine.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path
from typing import Any

import psutil
from experiment import RESULTS, finish, options

from trimaran.core.corpus import shipped_texts
from trimaran.serving.client import Client
from trimaran.serving.triton import daemon

SHARE, OFTEN, MOST_COST = 0.001, 0.1, 0.01
REQUESTS, WARM_UP, ROUNDS = 1500, 50, 6


def main() -> None:
    parser = options(__doc__, served=True, output=RESULTS / "shadow.json")
    parser.add_argument("--share", type=float, default=SHARE)
    asked = parser.parse_args()
    sys.exit(finish(measured(asked.repository, asked.model, asked.share), asked.output))


def measured(repository: Path, model: str, share: float) -> dict[str, Any]:
    servers = {each: daemon.serve_detached(repository, shadow=each) for each in (0.0, share, OFTEN)}
    costs: dict[float, list[float]] = {each: [] for each in servers}
    waits: dict[float, list[float]] = {each: [] for each in servers}
    try:
        for _ in range(ROUNDS):
            for each, server in servers.items():
                used_s, waited_s = turn(server, model)
                costs[each].append(used_s)
                waits[each].append(waited_s)
        checked = {
            str(each): sum(seen.checked for seen in server.shadow_state().versions) for each, server in servers.items()
        }
    finally:
        for server in servers.values():
            psutil.Process(server.pid).terminate()
    added, later = (
        {
            each: [with_it / without - 1 for without, with_it in zip(by_share[0.0], by_share[each], strict=True)]
            for each in (share, OFTEN)
        }
        for by_share in (costs, waits)
    )
    # Of the checks themselves: what they add where there are many, by their number.
    checks = statistics.median(added[OFTEN]) * share / OFTEN
    return {
        "model": model,
        "share": share,
        "texts_a_turn": REQUESTS,
        "rounds": ROUNDS,
        "checked": checked,
        "cpu_us_per_text": {str(each): [round(1e6 * value, 1) for value in values] for each, values in costs.items()},
        "added_by_round": {str(each): [round(value, 4) for value in values] for each, values in added.items()},
        "p50_ms": {str(each): [round(1e3 * value, 3) for value in values] for each, values in waits.items()},
        "later_by_round": {str(each): [round(value, 4) for value in values] for each, values in later.items()},
        "later": statistics.median(later[share]),
        "added": statistics.median(added[share]),
        "added_by_checks": checks,
        "claims": {
            f"costs at most {MOST_COST:.0%}": max(statistics.median(added[share]), checks) <= MOST_COST,
            # Six rounds that are all later would be so by chance once in 64 times.
            "delays no answer, as far as six rounds tell": min(later[share]) <= 0.0,
        },
    }


def turn(server: daemon.Running, model: str) -> tuple[float, float]:
    """Return the server's CPU seconds for a text, and the median seconds that a lone caller waited."""
    texts = shipped_texts("judging")
    with Client(f"127.0.0.1:{server.grpc_port}") as client:
        for text in texts[:WARM_UP]:
            client.embed(model, [text])
        before = cpu_s(server.pid)
        waits = []
        for index in range(REQUESTS):
            begun_s = time.perf_counter()
            client.embed(model, [texts[index % len(texts)]])
            waits.append(time.perf_counter() - begun_s)
        return (cpu_s(server.pid) - before) / REQUESTS, statistics.median(waits)


def cpu_s(supervisor: int) -> float:
    """Of all processes of a server."""
    total = 0.0
    for process in (psutil.Process(supervisor), *psutil.Process(supervisor).children(recursive=True)):
        times = process.cpu_times()
        total += times.user + times.system
    return total


if __name__ == "__main__":
    main()
