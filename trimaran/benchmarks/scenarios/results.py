"""What each scenario found, as raw samples; the numbers that people read are computed in `finals`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from trimaran.core.samples import Round, Shape
from trimaran.core.spec import Frozen, Rows

At = Literal["engine", "pipeline", "served"]
LEVELS: tuple[At, ...] = ("engine", "pipeline", "served")
Wire = Literal["grpc", "http"]


class TextsUsed(Frozen):
    """Which texts were asked: equal digests mean the same texts in the same order."""

    digest: str
    source: str
    n: int
    tokens: int
    longest: int
    truncated: int = 0


class ServerTime(Frozen):
    """What Triton itself counted during the scenario, summed over its successful requests."""

    requests: int
    queue_ns: int
    compute_input_ns: int
    compute_infer_ns: int
    compute_output_ns: int
    executions: int


class ScenarioResultBase(Frozen):
    """What every scenario says. `at`: tensors in, text in, or text in over the `wire` to `target`.

    `cut` is the sentence why it did not get to its end: what stands here is then what was found until then. `cut_by`
    says what it lacked: samples in time, its own process, or the server.
    """

    candidate: str
    at: At
    threads: int
    artifact: str | None = None
    rows: Rows | None = None
    wire: Wire | None = None
    target: Literal["triton", "gateway"] | None = None
    driver: str = "trimaran"
    texts: TextsUsed | None = None
    cut: str | None = None
    cut_by: Literal["samples", "process", "server"] | None = None


class SingleStream(ScenarioResultBase):
    """One text at a time, the next when the answer is there. Final: p50, p90 and p99 of the latency.

    `parts_ns` splits the same calls where the level can: at `pipeline` into `tokenise` and `compute`.
    """

    scenario: Literal["single-stream"] = "single-stream"
    rounds: tuple[Round, ...]
    parts_ns: dict[str, tuple[int, ...]] = {}
    server: ServerTime | None = None


class GridCell(Frozen):
    shape: Shape
    rounds: tuple[Round, ...]


class ShapeGrid(ScenarioResultBase):
    """Full-length rows of every batch x sequence. Final: rows per second of the best cell; the cells are the result."""

    scenario: Literal["shape-grid"] = "shape-grid"
    cells: tuple[GridCell, ...]


class MixedRound(Frozen):
    """Batches of real texts in random order; one entry of each tuple is one batch."""

    elapsed_ns: tuple[int, ...]
    rows: tuple[int, ...]
    tokens: tuple[int, ...]
    padded_tokens: tuple[int, ...]


class MixedLengths(ScenarioResultBase):
    """Batches of real texts. Final: real tokens per second; beside it the share of computed tokens that is padding."""

    scenario: Literal["mixed-lengths"] = "mixed-lengths"
    batch: int
    rounds: tuple[MixedRound, ...]


class OfflinePass(Frozen):
    elapsed_ns: int
    texts: int
    tokens: int


class Offline(ScenarioResultBase):
    """All texts at once, in whatever order and batches suit. Final: texts per second."""

    scenario: Literal["offline"] = "offline"
    passes: tuple[OfflinePass, ...]


class ClosedPoint(Frozen):
    """`concurrency` callers, each asking again as soon as it is answered."""

    concurrency: int
    elapsed_ns: int
    latencies_ns: tuple[int, ...]
    failures: int = 0


class ClosedLoop(ScenarioResultBase):
    """A sweep of concurrency. Final: the highest throughput; beside it the knee, where more callers stop paying."""

    scenario: Literal["closed-loop"] = "closed-loop"
    points: tuple[ClosedPoint, ...]


class OpenPoint(Frozen):
    """Poisson arrivals at a rate. Latencies count from the scheduled moment, so a server that lags pays for it."""

    rate_per_s: float
    elapsed_ns: int
    latencies_ns: tuple[int, ...]
    failures: int = 0


class OpenLoop(ScenarioResultBase):
    """Rising rates. Final: the highest rate at which `share` percent of the requests were answered in the budget."""

    scenario: Literal["open-loop"] = "open-loop"
    budget_ms: float
    share: float = 99.0
    points: tuple[OpenPoint, ...]


class ProcessStart(Frozen):
    """One start of a fresh process until its first answer; `correct` holds it to eager's answer."""

    elapsed_ns: int
    parts_ns: dict[str, int] = {}
    correct: bool
    distance: float


class ColdStart(ScenarioResultBase):
    """Process start to first correct answer. Final: the median; a start with a wrong answer does not count."""

    scenario: Literal["cold-start"] = "cold-start"
    starts: tuple[ProcessStart, ...]


class Memory(ScenarioResultBase):
    """Resident set of the measuring process. Final: the peak. `after_open` is with the model loaded and not yet run."""

    scenario: Literal["memory"] = "memory"
    peak_bytes: int
    after_open_bytes: int | None = None
    before_open_bytes: int | None = None


class SizeOnDisk(ScenarioResultBase):
    """What the engine reads. Final: the sum of the files."""

    scenario: Literal["size"] = "size"
    files: dict[str, int]


class EnergyPass(Frozen):
    joules: float
    elapsed_ns: int
    texts: int


class Energy(ScenarioResultBase):
    """What the processor package used while answering. Final: joules per thousand texts.

    `idle_watts` is the machine doing nothing, not subtracted. `unavailable` says why there is no counter.
    """

    scenario: Literal["energy"] = "energy"
    passes: tuple[EnergyPass, ...] = ()
    idle_watts: float | None = None
    counter: str | None = None
    unavailable: str | None = None


ScenarioResult = Annotated[
    SingleStream
    | ShapeGrid
    | MixedLengths
    | Offline
    | ClosedLoop
    | OpenLoop
    | ColdStart
    | Memory
    | SizeOnDisk
    | Energy,
    Field(discriminator="scenario"),
]


class SuiteRun(Frozen):
    """Which suite was run. `cut` says why it did not get to its end; `resumed` counts how often it was taken up."""

    name: str
    digest: str
    scenarios: tuple[str, ...]
    cut: str | None = None
    resumed: int = 0
