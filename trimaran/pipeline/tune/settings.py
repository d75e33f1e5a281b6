"""How a text stage can be served: the settings that are tried, and which of them look best."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from pydantic import Field

from trimaran.core.choices import Rows, TuneObjective
from trimaran.core.spec import Frozen
from trimaran.runtime.text import STRETCH

# Microseconds that a request may wait for company, with the batch sizes that end the waiting.
_WAITS: tuple[tuple[int, tuple[int, ...]], ...] = ((0, ()), (300, (4, 8)), (1000, (4, 8)), (2000, (8,)))
_STRETCHES = (1.0, STRETCH, 1.3)


class Setting(Frozen):
    """How a model is served, by the values of its `config.pbtxt` and `serving.json`."""

    instances: int = Field(ge=1)
    threads: int = Field(ge=1)
    delay_us: int = Field(default=0, ge=0)
    preferred: tuple[int, ...] = ()
    rows_a_call: int = Field(ge=1)
    stretch: float = STRETCH
    streams: int = Field(default=1, ge=1)

    def __str__(self) -> str:
        threads = f"{self.threads} thread{'s' if self.threads > 1 else ''}"
        waits = f"waits {self.delay_us} µs for {'/'.join(map(str, self.preferred)) or 'others'}"
        stretch = "" if self.stretch == STRETCH else f", stretch {self.stretch:g}"
        streams = f", {self.streams} calls side by side" if self.streams > 1 else ""
        return (
            f"{self.instances} × {threads}, {waits if self.delay_us else 'no waiting'}, "
            f"≤ {self.rows_a_call} row{'s' if self.rows_a_call > 1 else ''} a call{stretch}{streams}"
        )

    @property
    def slug(self) -> str:
        sizes = "-".join(map(str, self.preferred))
        rows = f"r{self.rows_a_call}-s{self.stretch:g}-n{self.streams}"
        return f"i{self.instances}-t{self.threads}-d{self.delay_us}-p{sizes}-{rows}"


class Figures(Frozen):
    # The median request of one caller.
    alone_s: float
    # Answers a second with many callers.
    crowd_per_s: float


def shapes(setting: Setting, cpus: int, *, side_by_side: bool = False) -> Iterator[Setting]:
    """Processes by threads, from one with every CPU to one a CPU; half and double the threads of an even share too.

    Where the engine runs calls `side_by_side`, also with a thread for each call of a batch.
    """
    for instances in _powers(cpus):
        even = max(1, cpus // instances)
        for threads in sorted({max(1, even // 2), even, min(cpus, 2 * even)}):
            for streams in sorted({1, threads if side_by_side else 1}):
                yield setting.model_copy(update={"instances": instances, "threads": threads, "streams": streams})


def waits(setting: Setting, largest: int) -> Iterator[Setting]:
    for delay_us, sizes in _WAITS:
        preferred = tuple(size for size in sizes if size <= largest)
        yield setting.model_copy(update={"delay_us": delay_us, "preferred": preferred})


def groupings(setting: Setting, largest: int, rows: Rows) -> Iterator[Setting]:
    """Only what was proven: rows that must be alone stay alone, those of equal length are never padded."""
    sizes = {1} if rows == "alone" else {size for size in (1, 4, 8, largest) if size <= largest}
    for rows_a_call in sorted(sizes):
        yield setting.model_copy(update={"rows_a_call": rows_a_call})
    if rows == "padded":
        for stretch in _STRETCHES:
            yield setting.model_copy(update={"stretch": stretch})


def gain(figures: Figures, present: Figures, objective: TuneObjective) -> float:
    """How many times better than the present setting: for `balanced` the product of both gains."""
    latency, throughput = present.alone_s / figures.alone_s, figures.crowd_per_s / present.crowd_per_s
    return {"latency": latency, "throughput": throughput, "balanced": latency * throughput}[objective]


def best_first(
    figures: Mapping[Setting, Figures],
    present: Setting,
    objective: TuneObjective,
    among: Iterable[Setting] | None = None,
) -> list[Setting]:
    chosen = figures if among is None else [setting for setting in among if setting in figures]
    return sorted(chosen, key=lambda setting: -gain(figures[setting], figures[present], objective))


def front(figures: Mapping[Setting, Figures]) -> list[Setting]:
    """The settings that no other beats in both figures, by latency."""

    def beaten(mine: Figures) -> bool:
        return any(
            other.alone_s <= mine.alone_s and other.crowd_per_s >= mine.crowd_per_s and other != mine
            for other in figures.values()
        )

    return sorted((setting for setting in figures if not beaten(figures[setting])), key=lambda s: figures[s].alone_s)


def different(settings: Iterable[Setting], *, than: Iterable[Setting] = ()) -> list[Setting]:
    """Each once, in order, without those that are known."""
    known = set(than)
    return [setting for setting in dict.fromkeys(settings) if setting not in known]


def _powers(cpus: int) -> Sequence[int]:
    powers = [1]
    while powers[-1] * 2 <= cpus:
        powers.append(powers[-1] * 2)
    return powers
