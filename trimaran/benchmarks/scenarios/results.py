"""The results of scenarios as raw samples. The figures that people read are computed in `finals`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from trimaran.core.choices import Rows
from trimaran.core.samples import Round, Shape
from trimaran.core.spec import Frozen

At = Literal["engine", "pipeline", "served"]
LEVELS: tuple[At, ...] = ("engine", "pipeline", "served")
Wire = Literal["grpc", "http"]


class TextsUsed(Frozen):
    """Which texts were asked."""

    # Equal digests mean the same texts in the same order.
    digest: str
    source: str
    n: int
    tokens: int
    # Tokens of the longest text.
    longest: int
    # Texts that were cut to the model's limit.
    truncated: int = 0


class ServerTime(Frozen):
    """What Triton counted during the scenario, summed over its successful requests."""

    requests: int
    queue_ns: int
    compute_input_ns: int
    compute_infer_ns: int
    compute_output_ns: int
    executions: int


class ScenarioResultBase(Frozen):
    """What every scenario records."""

    candidate: str
    # Tensors in, text in, or text in over the wire to a server.
    at: At
    threads: int
    # Digest of the artifact.
    artifact: str | None = None
    # How rows may share a call.
    rows: Rows | None = None
    wire: Wire | None = None
    target: Literal["triton", "gateway"] | None = None
    # Who issued the requests.
    driver: str = "trimaran"
    texts: TextsUsed | None = None
    # Why it did not run to its end; the result then holds what was measured until then.
    cut: str | None = None
    # What it lacked: samples in time, its own process, or the server.
    cut_by: Literal["samples", "process", "server"] | None = None


class SingleStream(ScenarioResultBase):
    """One text at a time, the next when the answer is there. Final: p50, p90 and p99 of the latency."""

    scenario: Literal["single-stream"] = "single-stream"
    rounds: tuple[Round, ...]
    # The same calls split into `tokenise` and `compute`, at the level `pipeline`.
    parts_ns: dict[str, tuple[int, ...]] = {}
    server: ServerTime | None = None


class GridCell(Frozen):
    """One shape of a grid."""

    shape: Shape
    rounds: tuple[Round, ...]


class ShapeGrid(ScenarioResultBase):
    """Full-length rows of every batch x sequence. Final: rows per second of the best cell."""

    scenario: Literal["shape-grid"] = "shape-grid"
    cells: tuple[GridCell, ...]


class MixedRound(Frozen):
    """Batches of real texts in random order; one entry of each tuple is one batch."""

    elapsed_ns: tuple[int, ...]
    rows: tuple[int, ...]
    tokens: tuple[int, ...]
    padded_tokens: tuple[int, ...]


class MixedLengths(ScenarioResultBase):
    """Batches of real texts. Final: real tokens per second, and the share of computed tokens that is padding."""

    scenario: Literal["mixed-lengths"] = "mixed-lengths"
    batch: int
    rounds: tuple[MixedRound, ...]


class OfflinePass(Frozen):
    """All texts once."""

    elapsed_ns: int
    texts: int
    tokens: int


class Offline(ScenarioResultBase):
    """All texts at once, in any order and any batches. Final: texts per second."""

    scenario: Literal["offline"] = "offline"
    passes: tuple[OfflinePass, ...]


class ClosedPoint(Frozen):
    """`concurrency` callers, each asking again as soon as it is answered."""

    concurrency: int
    elapsed_ns: int
    latencies_ns: tuple[int, ...]
    failures: int = 0


class ClosedLoop(ScenarioResultBase):
    """A sweep of concurrency. Final: the highest throughput, and the knee, beyond which more callers gain little."""

    scenario: Literal["closed-loop"] = "closed-loop"
    points: tuple[ClosedPoint, ...]


class OpenPoint(Frozen):
    """Poisson arrivals at a rate. Latencies count from the scheduled moment, so waiting in line is included."""

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
    """One start of a fresh process until its first answer."""

    elapsed_ns: int
    parts_ns: dict[str, int] = {}
    # Whether the answer is the one that was judged before, and how far it is from that.
    correct: bool
    distance: float


class ColdStart(ScenarioResultBase):
    """Process start to first correct answer. Final: the median; a start with a wrong answer does not count."""

    scenario: Literal["cold-start"] = "cold-start"
    starts: tuple[ProcessStart, ...]


class Memory(ScenarioResultBase):
    """Resident set of the measuring process. Final: the peak."""

    scenario: Literal["memory"] = "memory"
    peak_bytes: int
    # With the model loaded and not yet run, and before it was loaded.
    after_open_bytes: int | None = None
    before_open_bytes: int | None = None


class SizeOnDisk(ScenarioResultBase):
    """What the engine reads. Final: the sum of the files."""

    scenario: Literal["size"] = "size"
    files: dict[str, int]


class EnergyPass(Frozen):
    """Whole passes over the texts, long enough for the counter."""

    joules: float
    elapsed_ns: int
    texts: int


class Energy(ScenarioResultBase):
    """What the processor package used while answering. Final: joules per thousand texts."""

    scenario: Literal["energy"] = "energy"
    passes: tuple[EnergyPass, ...] = ()
    # Of the idle machine; not subtracted.
    idle_watts: float | None = None
    counter: str | None = None
    # Why there is no counter.
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
    """Which suite was run."""

    name: str
    digest: str
    scenarios: tuple[str, ...]
    # Why it did not run to its end.
    cut: str | None = None
    # How often it was continued after a cut.
    resumed: int = 0
