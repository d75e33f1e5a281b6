"""Small literal results of every scenario, at every level, for tests of figures and of renderers."""

from __future__ import annotations

import numpy as np

from trimaran.benchmarks.scenarios import results
from trimaran.benchmarks.scenarios.results import ScenarioResult, TextsUsed
from trimaran.core.samples import Round, Shape

MILLISECOND = 1_000_000
TEXTS = TextsUsed(digest="d" * 64, source="shipped judging texts", n=64, tokens=1900, longest=61)


def samples(median_ms: float, *, n: int = 40, seed: int = 0) -> tuple[int, ...]:
    generator = np.random.default_rng(seed)
    return tuple(int(median_ms * MILLISECOND * x) for x in generator.lognormal(0, 0.05, n))


def rounds(median_ms: float, *, count: int = 3, n: int = 40) -> tuple[Round, ...]:
    return tuple(Round(samples_ns=samples(median_ms, n=n, seed=seed)) for seed in range(count))


def scenario_results(candidate: str = "quick", *, speed: float = 1.0) -> tuple[ScenarioResult, ...]:
    """Every scenario once, the single stream at all three levels; `speed` divides every time."""
    engine = {"candidate": candidate, "at": "engine", "threads": 2, "artifact": "a" * 64, "rows": "padded"}
    piped = {**engine, "at": "pipeline", "texts": TEXTS}
    served = {**piped, "at": "served", "wire": "grpc", "target": "triton", "driver": "mlperf-loadgen 6.0.17"}
    rest = 6.0 / speed
    server = results.ServerTime(
        requests=120,
        executions=120,
        queue_ns=120 * 40_000,
        compute_input_ns=120 * 20_000,
        compute_infer_ns=int(120 * (rest + 0.4) * MILLISECOND),
        compute_output_ns=120 * 10_000,
    )
    shapes = [Shape(batch=batch, sequence=sequence) for batch in (1, 8, 32) for sequence in (16, 64, 128)]
    return (
        results.SingleStream(**{**engine, "texts": TEXTS}, rounds=rounds(rest - 0.3)),
        results.SingleStream(
            **piped,
            rounds=rounds(rest),
            parts_ns={"tokenise": samples(0.3, n=120), "compute": samples(rest - 0.3, n=120)},
        ),
        results.SingleStream(**served, rounds=rounds(rest + 1.2, count=1, n=320), server=server),
        results.SingleStream(**{**served, "wire": "http"}, rounds=rounds(rest + 1.0, count=1, n=120), server=server),
        results.ShapeGrid(
            **engine,
            cells=tuple(
                results.GridCell(
                    shape=shape, rounds=rounds((1 + 0.002 * shape.batch * shape.sequence) / speed, count=2, n=5)
                )
                for shape in shapes
            ),
        ),
        results.MixedLengths(
            **piped,
            batch=8,
            rounds=tuple(
                results.MixedRound(
                    elapsed_ns=samples(20 / speed, n=8, seed=seed),
                    rows=(8,) * 8,
                    tokens=(240,) * 8,
                    padded_tokens=(300,) * 8,
                )
                for seed in range(3)
            ),
        ),
        results.Offline(
            **piped,
            passes=tuple(results.OfflinePass(elapsed_ns=n, texts=64, tokens=1900) for n in samples(150 / speed, n=5)),
        ),
        results.ClosedLoop(
            **served,
            points=tuple(
                results.ClosedPoint(
                    concurrency=callers,
                    elapsed_ns=2_000_000_000,
                    latencies_ns=samples(max(7, 4 * callers) / speed, n=int(speed * min(280 * callers, 500))),
                )
                for callers in (1, 2, 4, 8, 16)
            ),
        ),
        results.OpenLoop(
            **served,
            budget_ms=25,
            points=tuple(
                results.OpenPoint(rate_per_s=rate, elapsed_ns=2_000_000_000, latencies_ns=samples(ms, n=int(2 * rate)))
                for rate, ms in ((50, 8), (100, 9), (150, 14), (200, 60))
            ),
        ),
        results.ColdStart(
            **piped,
            starts=tuple(
                results.ProcessStart(
                    elapsed_ns=n,
                    parts_ns={"imports": n // 2, "open": n // 3, "first answer": n - n // 2 - n // 3},
                    correct=True,
                    distance=1e-7,
                )
                for n in samples(900 / speed, n=3)
            ),
        ),
        results.Memory(**engine, peak_bytes=180_000_000, after_open_bytes=160_000_000, before_open_bytes=40_000_000),
        results.SizeOnDisk(**engine, files={"model.bin": 22_000_000, "model.xml": 500_000}),
        results.Energy(**piped, unavailable="This machine shows no RAPL counter (/sys/class/powercap has no package)."),
    )


def cut_result() -> ScenarioResult:
    """A served scenario whose server died in the middle: what was found until then is kept and marked."""
    return results.ClosedLoop(
        candidate="quick",
        at="served",
        threads=2,
        wire="http",
        target="triton",
        texts=TEXTS,
        cut="The server at 127.0.0.1:8000 stopped answering at 4 callers.",
        points=(results.ClosedPoint(concurrency=1, elapsed_ns=10**9, latencies_ns=samples(7, n=140), failures=0),),
    )
