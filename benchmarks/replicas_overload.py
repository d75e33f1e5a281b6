"""Three times the capacity for two minutes: three Tritons in containers behind one gateway, OpenAI's client.

    make containers && python benchmarks/replicas_overload.py -o benchmarks/results/replicas-overload.json   (4 minutes)

Every request is accounted for: it is answered, or refused with 429 or 503 and Retry-After. Meanwhile the probes of the
manifests are asked each second, with their timeout. Exit 1 when one of the claims does not hold.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import experiment
import numpy as np
import pods
from load import capacity, latencies, overload
from load_calls import OpenAITarget
from pods import Bridge

SECONDS_A_REQUEST = 0.2
TRITONS = ("triton-0", "triton-1", "triton-2")
# Texts that each Triton has at a time: some seconds of work.
IN_FLIGHT = 16
# Of the manifests.
PROBE_TIMEOUT_S = 3.0


class Probes(threading.Thread):
    """Asks what a kubelet would ask, each second."""

    def __init__(self, urls: dict[str, str]) -> None:
        super().__init__(daemon=True)
        self._urls = urls
        self._over = threading.Event()
        self.statuses: dict[str, Counter[int]] = {name: Counter() for name in urls}

    def run(self) -> None:
        while not self._over.wait(1.0):
            for name, url in self._urls.items():
                self.statuses[name][pods.ask(url, timeout_s=PROBE_TIMEOUT_S)[0]] += 1

    def end(self) -> dict[str, dict[str, int]]:
        self._over.set()
        self.join()
        return {name: {str(status): count for status, count in seen.items()} for name, seen in self.statuses.items()}


def repairs(network: Bridge) -> dict[str, int]:
    """How often anything was started or loaded again, by the supervisors inside and by podman."""
    counts: Counter[str] = Counter()
    for name in TRITONS:
        server = pods.served_in(network.full(name))
        counts["models loaded again"] += server["reloads"]
        counts["servers started again"] += server["restarts"]
    for name in (*TRITONS, "gateway"):
        facts = network.facts(name)
        counts["containers started again"] += facts["RestartCount"]
        counts["containers that ended"] += facts["State"]["Status"] != "running"
    return dict(counts)


async def run(network: Bridge, root: Path, *, seconds: float, factor: float, callers: int) -> dict[str, Any]:
    pods.lay_out_versions(root / "repository", 1, seconds=SECONDS_A_REQUEST)
    addresses = [network.run(name, pods.CPU_IMAGE, root / "repository", alias="tritons") for name in TRITONS]
    gateway = network.gateway(root / "repository", "tritons:8001", f"--in-flight={IN_FLIGHT}")
    pods.wait_for(lambda: pods.ready(gateway) == len(TRITONS), "all Tritons are ready")
    target = OpenAITarget(gateway, "m", "none")
    texts, wanted = ["the dog"], np.ones((1, 1), np.float32)
    able = await capacity(target, texts, wanted, callers=24, seconds=15.0)
    urls = {"gateway ready": f"{gateway}/readyz", "gateway live": f"{gateway}/healthz"}
    for name, address in zip(TRITONS, addresses, strict=True):
        urls |= {f"{name} {word}": f"http://{address}:8000/v2/health/{word}" for word in ("ready", "live")}
    probes = Probes(urls)
    probes.start()
    outcomes = await overload(target, texts, wanted, callers=callers, seconds=seconds, rate=factor * able)
    probed = probes.end()
    await target.close()
    repaired = repairs(network)
    statuses = Counter(outcome.status for outcome in outcomes)
    sent_per_s = len(outcomes) / seconds
    return {
        "schema": 1,
        "what": f"{factor:g} times capacity for {seconds:g} s: OpenAI's client, a gateway, three Tritons in containers",
        "seconds_a_request": SECONDS_A_REQUEST,
        "in_flight": IN_FLIGHT,
        "capacity_per_s": able,
        "sent_per_s": sent_per_s,
        "statuses": dict(statuses),
        "latency_of_answers_s": latencies(outcomes),
        "probes": probed,
        "repairs": repaired,
        "claims": {
            "sent at least 2.7 times the capacity": sent_per_s >= 0.9 * factor * able,
            "every request answered, or refused with 429 or 503 and Retry-After": not any(
                outcome.lost or outcome.improper or outcome.wrong for outcome in outcomes
            ),
            "capacity kept": statuses["200"] / seconds >= 0.9 * able,
            "every probe stayed 200": all(set(seen) == {"200"} for seen in probed.values()),
            "nothing was started again": not any(repaired.values()),
        },
    }


def main() -> int:
    parser = experiment.options(__doc__)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--factor", type=float, default=3.0)
    parser.add_argument("--callers", type=int, default=900)
    options = parser.parse_args()
    if reason := pods.why_not():
        sys.exit(reason)
    with tempfile.TemporaryDirectory() as folder, pods.bridge() as network:
        Path(folder).chmod(0o755)
        result = asyncio.run(
            run(network, Path(folder), seconds=options.seconds, factor=options.factor, callers=options.callers)
        )
    return experiment.finish(result, options.output)


if __name__ == "__main__":
    sys.exit(main())
