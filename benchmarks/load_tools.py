"""Standard load tools beside our own harness: perf_analyzer at Triton over HTTP and gRPC, aiperf at the gateway.

    make .envs/perf-analyzer/.installed .envs/aiperf/.installed
    python benchmarks/load_tools.py model_repository minilm -o benchmarks/results/load-tools.json

Both ask the same texts with the same number of callers, in turns. Each figure has the interval of its turns. Exit 1
where the intervals of a tool and of our harness do not meet.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import experiment
from experiment import ROOT, finish

from trimaran.benchmarks.scenarios.results import Wire
from trimaran.core.corpus import shipped_texts
from trimaran.core.errors import ToolError
from trimaran.core.scratch import ScratchFolder
from trimaran.judging.stats import over_rounds, percentile
from trimaran.model_repository.versions import model_versions
from trimaran.pipeline.suite.callers import ServerCallers
from trimaran.pipeline.suite.load_driver import LoadDriver, ServedTarget
from trimaran.serving.triton.server import launch

sys.path.append(str(Path(__file__).parent / "peers"))
import perf_tool
from servers import gateway

TEXTS = 64
AIPERF = ROOT / ".envs" / "aiperf" / "bin" / "aiperf"
LIMIT_S = 180.0


@dataclass(frozen=True)
class Figures:
    """What one turn of load gave."""

    answers_per_s: float
    p50_ms: float
    p99_ms: float


Turn = Callable[[int], Figures]


@dataclass(frozen=True)
class Comparison:
    """A tool, the server it asks, and our harness at the same place."""

    tool: str
    target: ServedTarget
    wire: Wire
    by_tool: Turn


def by_perf_analyzer(asked: argparse.Namespace, wire: Wire, url: str, texts: Sequence[str], folder: Path) -> Turn:
    def turn(callers: int) -> Figures:
        point = perf_tool.closed_loop(
            asked.model, wire, url, texts, folder, callers=callers, time_s=asked.seconds, limit_s=LIMIT_S
        )
        return figures_of(point["elapsed_ns"], point["latencies_ns"])

    return turn


def by_aiperf(asked: argparse.Namespace, url: str, texts: Sequence[str], folder: Path) -> Turn:
    inputs = folder / "texts.jsonl"
    inputs.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    version = model_versions(asked.repository, asked.model).served[-1]
    tokenizer = asked.repository / asked.model / str(version)

    def turn(callers: int) -> Figures:
        artifacts = folder / f"aiperf-{callers}"
        done = subprocess.run(
            aiperf_command(asked.model, url, inputs, tokenizer, artifacts, callers=callers, seconds=asked.seconds),
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        exported = artifacts / "profile_export_aiperf.json"
        if done.returncode or not exported.is_file():
            raise ToolError(f"aiperf ended with {done.returncode}: {(done.stdout + done.stderr)[-600:]}")
        found = json.loads(exported.read_text(encoding="utf-8"))
        exported.unlink()
        latency = found["request_latency"]
        return Figures(found["request_throughput"]["avg"], latency["p50"], latency["p99"])

    return turn


def aiperf_command(
    model: str, url: str, inputs: Path, tokenizer: Path, artifacts: Path, *, callers: int, seconds: float
) -> list[str]:
    """As it is typed, but for the folders."""
    return [
        *(str(AIPERF), "profile", "--model", model, "--url", f"http://{url}", "--tokenizer", str(tokenizer)),
        *("--endpoint-type", "embeddings", "--endpoint", "/v1/embeddings"),
        *("--input-file", str(inputs), "--custom-dataset-type", "single_turn"),
        *("--concurrency", str(callers), "--benchmark-duration", str(seconds), "--ui", "none"),
        *("--artifact-dir", str(artifacts)),
    ]


def figures_of(elapsed_ns: int, latencies_ns: Sequence[int]) -> Figures:
    p50_ms, p99_ms = (percentile(latencies_ns, share) / 1e6 for share in (50, 99))
    return Figures(len(latencies_ns) * 1e9 / elapsed_ns, p50_ms, p99_ms)


def ours(driver: LoadDriver, seconds: float) -> Turn:
    def turn(callers: int) -> Figures:
        load = driver.load(
            ServerCallers.closed_loop, LIMIT_S, callers=callers, samples=50, time_s=seconds, limit_s=LIMIT_S
        )
        return figures_of(load.elapsed_ns, load.latencies_ns)

    return turn


def compared(comparison: Comparison, asked: argparse.Namespace, texts: Sequence[str]) -> Iterator[dict[str, Any]]:
    """One row for each number of callers: both in turns, so that they share the slow moments of the machine."""
    with contextlib.closing(LoadDriver(comparison.target, comparison.wire, texts)) as driver:
        driver.load(ServerCallers.warm_up, LIMIT_S, calls=len(texts))
        by_harness = ours(driver, asked.seconds)
        for callers in asked.callers:
            print(f"{comparison.tool}, {callers} callers", file=sys.stderr)
            turns = [(comparison.by_tool(callers), by_harness(callers)) for _ in range(asked.turns)]
            row: dict[str, Any] = {"tool": comparison.tool, "callers": callers}
            for name in ("answers_per_s", "p50_ms", "p99_ms"):
                sides = [[getattr(side, name) for side in sides] for sides in zip(*turns, strict=True)]
                row[name] = {who: interval(side) for who, side in zip(("tool", "ours"), sides, strict=True)}
                row[name]["agree"] = meet(row[name]["tool"], row[name]["ours"])
            yield row


def interval(values: Sequence[float]) -> dict[str, Any]:
    bounds = over_rounds(values)
    return {"median": bounds.median, "low": bounds.low, "high": bounds.high, "turns": list(values)}


def meet(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return bool(one["low"] <= other["high"] and other["low"] <= one["high"])


def main() -> int:
    parser = experiment.options(__doc__, served=True)
    parser.add_argument("--callers", type=int, nargs="*", default=[1, 8, 32])
    parser.add_argument("--seconds", type=float, default=3.0, help="of one turn")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--only", choices=["perf_analyzer", "aiperf"], help="one of the tools")
    asked = parser.parse_args()
    asked.repository = asked.repository.absolute()
    texts = shipped_texts("judging")[:TEXTS]
    rows: list[dict[str, Any]] = []
    with ScratchFolder("tools") as scratch, launch(asked.repository) as server:
        folder = Path(scratch)
        for wire, url in (("http", server.http_url), ("grpc", server.grpc_url)) if asked.only != "aiperf" else ():
            target = ServedTarget(kind="triton", model=asked.model, task="embedding", urls={wire: url})  # type: ignore[dict-item]
            turn = by_perf_analyzer(asked, wire, url, texts, folder)  # type: ignore[arg-type]
            rows += compared(Comparison(f"perf_analyzer, {wire}", target, wire, turn), asked, texts)  # type: ignore[arg-type]
        if asked.only != "perf_analyzer":
            with gateway(asked.repository, server.grpc_url) as url:
                target = ServedTarget(kind="gateway", model=asked.model, task="embedding", urls={"http": url})
                turn = by_aiperf(asked, url, texts, folder)
                rows += compared(Comparison("aiperf, gateway", target, "http", turn), asked, texts)
    result = {
        "schema": 1,
        "what": "standard load tools beside our own harness, in turns; intervals are those of the turns",
        "model": asked.model,
        "texts": len(texts),
        "rows": rows,
        "claims": {
            f"{row['tool']}, {row['callers']} callers, {name}": row[name]["agree"]
            for row in rows
            for name in ("answers_per_s", "p50_ms")
        },
    }
    return finish(result, asked.output)


if __name__ == "__main__":
    sys.exit(main())
