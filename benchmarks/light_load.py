"""What a steady small load of other work does to a race: delays of turns, A against A, and the speed-up over eager.

    python benchmarks/light_load.py ENGINE [-o result.json]

ENGINE is a candidate, a folder or a name in the store. Beside each race, other processes work for a share of every ten
milliseconds, like a kernel thread that does its rounds. It needs an otherwise idle machine.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from experiment import RESULTS, finish, options

from trimaran.benchmarks.measure.measurement import Measurement
from trimaran.benchmarks.measure.quiet import DELAY_LIMIT
from trimaran.benchmarks.measure.runner import Effort, RaceEntry, measure
from trimaran.benchmarks.report.figures import speedups
from trimaran.core.artifact import Artifact
from trimaran.core.environment import usable_cores
from trimaran.core.pinning import cores_for
from trimaran.core.samples import Shape
from trimaran.core.store import Store, default_home
from trimaran.judging.stats import Ratio

# Shares of one core that each process of a load takes.
LOADS: dict[str, tuple[float, ...]] = {
    "none": (),
    "5 % of a core": (0.05,),
    "10 % of a core": (0.1,),
    "20 % of a core": (0.2,),
    "50 % of a core": (0.5,),
    "a core": (1.0,),
    "both cores": (1.0, 1.0),
}
SHAPES = (Shape(batch=1, sequence=16), Shape(batch=1, sequence=128))
EFFORT = Effort(rounds=9, leader_rounds=0)
_PERIOD_S = 0.01
_SPINNER = """
import sys, time
share, period = float(sys.argv[1]), float(sys.argv[2])
while True:
    until = time.perf_counter() + share * period
    while time.perf_counter() < until:
        pass
    if share < 1:
        time.sleep((1 - share) * period)
"""


def main() -> None:
    parser = options(__doc__, output=RESULTS / "light-load.json")
    parser.add_argument("engine")
    asked = parser.parse_args()
    store = Store(default_home() / "store")
    engine = store.open(asked.engine)
    eager = next(ancestor for ancestor in store.lineage(engine) if ancestor.format == "torch")
    rows = {name: raced(eager, engine, shares) for name, shares in LOADS.items()}
    result = {"model": engine.name, "engine": asked.engine, "delay_limit": DELAY_LIMIT, "loads": rows}
    sys.exit(finish(result, asked.output))


@contextmanager
def other_work(shares: Sequence[float]) -> Iterator[None]:
    with ExitStack() as stack:
        for share in shares:
            command = [sys.executable, "-c", _SPINNER, str(share), str(_PERIOD_S)]
            process = stack.enter_context(subprocess.Popen(command))
            stack.callback(process.kill)
        yield


def raced(eager: Artifact, engine: Artifact, shares: Sequence[float]) -> dict[str, Any]:
    """No turn is void, so that the load shows in every figure."""
    entries = [RaceEntry("eager", eager)] + [
        RaceEntry(name, engine, environment=engine.execution_environment) for name in ("A", "again A")
    ]
    threads = usable_cores()
    with other_work(shares):
        measured = measure(entries, SHAPES, threads=threads, cores=cores_for(threads), effort=EFFORT)
    return {
        "others_share": measured.others_share,
        "delays": {f"{row.candidate} at {row.shape}": delays(row) for row in measured.measurements},
        "speed_up": ratios(speedups(measured.measurements, "A", reference="eager")),
        "a_against_a": ratios(speedups(measured.measurements, "again A", reference="A")),
    }


def delays(row: Measurement) -> dict[str, float]:
    """Of the turns of one contender, the share of the time that its threads waited for a CPU."""
    values = [turn.delayed for turn in row.rounds if turn.delayed is not None]
    return {"median": round(statistics.median(values), 4), "largest": round(max(values), 4)} if values else {}


def ratios(by_shape: dict[Shape, Ratio]) -> dict[str, list[float]]:
    """The ratio and its interval."""
    return {
        str(shape): [round(value, 3) for value in (ratio.median, ratio.low, ratio.high)]
        for shape, ratio in by_shape.items()
    }


if __name__ == "__main__":
    main()
