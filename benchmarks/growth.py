"""How cost grows: with the length, the batch, the model's size and the number of models served.

    python benchmarks/growth.py [--only length batch size served] [--quick] [--output FILE]

Seeded models of real sizes, eager PyTorch beside INT8, in interleaved rounds; writes `benchmarks/results/growth.json`
and from it the pictures and tables of `docs/performance.md`. Exports are kept in the store, so a second run is quicker.
"""

from __future__ import annotations

import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from experiment import minutes, options, undisturbed
from growth_results import RESULT, Curve, Growth, Point, ServedModels, read_growth
from sized_models import SIZES, made, sized_model

from trimaran.benchmarks.measure.products import products_of
from trimaran.benchmarks.measure.quiet import DELAY_LIMIT
from trimaran.benchmarks.measure.runner import Effort, RaceEntry, measure
from trimaran.benchmarks.report.report import REFERENCE
from trimaran.core.artifact import Artifact, load_artifact
from trimaran.core.corpus import shipped_texts
from trimaran.core.environment import capture, usable_cores
from trimaran.core.pinning import cores_for
from trimaran.core.progress import Progress, Step, progress_for
from trimaran.core.samples import Shape
from trimaran.core.store import Store, default_home, write_atomically
from trimaran.model_repository.layout import lay_out
from trimaran.serving.client import Client
from trimaran.serving.triton import processes
from trimaran.serving.triton.server import launch

ENGINE = "openvino-int8-weights"
SMALL = "6x384"
TYPICAL = 128
LENGTHS = (16, 32, 64, 128, 256, 512)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
MODELS = (1, 2, 4)
ASKED = 50
CURVES = ("length", "batch", "size", "served")
FULL = Effort(rounds=5, minimum_rounds=3, minimum_time_s=0.1, budget_s=60.0, delay_limit=DELAY_LIMIT)
QUICK = Effort(rounds=1, minimum_rounds=1, minimum_time_s=0.0, warmup_time_s=0.0, budget_s=1.0)


class Sized:
    """One model of a size: eager, its graph, and the INT8 engine made of it."""

    def __init__(self, size: str, home: Path, *, batch: int = 1, sequence: int = TYPICAL) -> None:
        """For no larger shapes than these: an export is proven at the largest, which costs as much as it computes."""
        model = sized_model(size, home / size)
        store = ("--store", str(home / "store"))
        profile = ("--batch", "1", "1", str(batch), "--sequence", "1", str(TYPICAL), str(sequence))
        graph = made("export", "-m", str(model), "--task", "embedding", *profile, *store)
        self.engine = load_artifact(made("quantize", str(graph), "--to", ENGINE, *store))
        self.graph: Artifact = load_artifact(graph)
        self.eager = Store(home / "store").lineage(self.graph)[-1]

    @property
    def entries(self) -> list[RaceEntry]:
        return [
            RaceEntry(REFERENCE, self.eager),
            RaceEntry(ENGINE, self.engine, environment=self.engine.execution_environment),
        ]

    def operations(self, shape: Shape) -> int:
        """Of all its matrix products: the order that cost is expected to grow in."""
        return sum(product.operations for product in products_of(self.graph.entry_path, shape))


def main() -> None:
    parser = options(__doc__, output=RESULT)
    parser.add_argument("--only", nargs="+", choices=CURVES, default=None)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES), help="models of the size curve")
    parser.add_argument("--quick", action="store_true", help="one round: a proof that it runs, give --output")
    asked = parser.parse_args()
    if asked.output == RESULT and (asked.quick or set(asked.sizes) != set(SIZES)):
        parser.error("a trial is no committed result: give --output FILE")
    begun_s = time.monotonic()
    earlier = read_growth(asked.output) if asked.only and asked.output.is_file() else None
    found = grown(asked.only, asked.sizes, QUICK if asked.quick else FULL, earlier, progress_for(sys.stderr))
    write_atomically(asked.output.absolute(), found.to_json())
    print(asked.output)
    if asked.output == RESULT:
        from performance import write_page

        print(write_page())
    minutes(begun_s)


def grown(
    only: list[str] | None, sizes: list[str], effort: Effort, earlier: Growth | None, progress: Progress
) -> Growth:
    """What is not asked for is kept from the earlier result."""
    home = default_home() / "growth"
    home.mkdir(parents=True, exist_ok=True)
    threads = usable_cores()
    curves = {curve.name: curve for curve in earlier.curves} if earlier else {}
    served = earlier.served if earlier else ()
    wanted = only or CURVES
    grids = {
        "length": ("tokens", [Shape(batch=1, sequence=tokens) for tokens in LENGTHS]),
        "batch": ("rows", [Shape(batch=rows, sequence=TYPICAL) for rows in BATCHES]),
    }
    for name, (unit, shapes) in grids.items():
        if name in wanted:
            with progress.stage(name) as step:
                model = Sized(SMALL, home, batch=shapes[-1].batch, sequence=shapes[-1].sequence)
                curves[name] = shape_curve(name, unit, model, shapes, threads, effort, step)
    if "size" in wanted:
        curves["size"] = size_curve(sizes, home, threads, effort, progress)
    if "served" in wanted:
        with progress.stage("served") as step:
            engine = Sized(SMALL, home, batch=BATCHES[-1]).engine
            served = served_models(engine, threads, step)
    return Growth(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        environment=capture(),
        threads=threads,
        engine=ENGINE,
        curves=tuple(curves.values()),
        served=served,
    )


def shape_curve(
    name: str, unit: str, model: Sized, shapes: list[Shape], threads: int, effort: Effort, step: Step
) -> Curve:
    measured = undisturbed(
        measure(model.entries, shapes, threads=threads, cores=cores_for(threads), effort=effort, step=step)
    )
    points = tuple(
        Point(
            x=shape.sequence if unit == "tokens" else shape.batch,
            operations=model.operations(shape),
            measurements=tuple(one for one in measured.measurements if one.shape == shape),
        )
        for shape in shapes
    )
    return Curve(name=name, unit=unit, points=points, others_share=measured.others_share)


def size_curve(sizes: list[str], home: Path, threads: int, effort: Effort, progress: Progress) -> Curve:
    """One text of the typical length; a model after the other, because large ones do not all fit beside each other."""
    shape = Shape(batch=1, sequence=TYPICAL)
    points, shares = [], []
    for size in sizes:
        with progress.stage(f"size {size}") as step:
            # The smallest is the one of the length curve, which is there already.
            model = Sized(size, home, sequence=LENGTHS[-1] if size == SMALL else TYPICAL)
            found = undisturbed(
                measure(model.entries, [shape], threads=threads, cores=cores_for(threads), effort=effort, step=step)
            )
        layers, hidden = SIZES[size]
        # Twelve matrices of hidden x hidden a layer: what grows with the size.
        points.append(
            Point(
                x=12 * layers * hidden * hidden,
                words=size,
                operations=model.operations(shape),
                measurements=found.measurements,
            )
        )
        shares.append(found.others_share)
    return Curve(
        name="size",
        unit="weights of the layers",
        points=tuple(points),
        others_share=max((share for share in shares if share is not None), default=None),
    )


def served_models(engine: Artifact, threads: int, step: Step) -> tuple[ServedModels, ...]:
    """The same engine under several names in one Triton: start, memory, and what one of them takes to answer."""
    texts = list(shipped_texts("judging")[:ASKED])
    found = []
    for count in MODELS:
        step.advance(len(found), len(MODELS), f"{count} models")
        with tempfile.TemporaryDirectory(prefix="trimaran-growth-") as scratch:
            names = [f"model{index}" for index in range(count)]
            for name in names:
                lay_out(engine, repository=Path(scratch), name=name, rows="equal-length", threads=threads)
            begun_ns = time.perf_counter_ns()
            with launch(Path(scratch)) as server, Client(server.grpc_url) as client:
                started_ns = time.perf_counter_ns() - begun_ns
                for name in names:
                    client.query(name, texts[:8])
                latencies = []
                for text in texts:
                    asked_ns = time.perf_counter_ns()
                    client.query(names[0], [text])
                    latencies.append(time.perf_counter_ns() - asked_ns)
                memory = processes.memory_bytes(server.keeper_pid)
        found.append(
            ServedModels(models=count, started_ns=started_ns, memory_bytes=memory, latencies_ns=tuple(latencies))
        )
    return tuple(found)


if __name__ == "__main__":
    main()
