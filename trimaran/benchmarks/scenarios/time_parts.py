"""Where the time of one text goes: the same texts at the engine, from the text on and over the wire, subtracted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from trimaran.benchmarks.scenarios.results import ScenarioResult, SingleStream, Wire

# What each part of a text's time is, in the order in which a text meets them.
PARTS = {
    "tokenise": "text to tensors",
    "compute": "the engine",
    "queue": "waiting in Triton for its turn",
    "stage": "Triton's model process around tokenising and computing",
    "tensors": "Triton reading inputs and writing outputs",
    "wire": "client, network and Triton's front end",
}


class TimePart(NamedTuple):
    """One of `PARTS`. A part that comes from a subtraction can be a little below zero, and is shown so."""

    name: str
    # Of one text.
    mean_ns: float


class TimeSplit(NamedTuple):
    """Where the time of one text goes, over one wire or in process."""

    candidate: str
    wire: Wire | None
    # The mean time of one text as its caller waits for it: the sum of the parts.
    total_ns: float
    parts: tuple[TimePart, ...]

    @property
    def by_name(self) -> dict[str, float]:
        return {part.name: part.mean_ns for part in self.parts}


def time_splits(scenarios: Sequence[ScenarioResult]) -> tuple[TimeSplit, ...]:
    """One for each candidate and wire whose single streams were asked the same texts; in process where not served."""
    streams = [result for result in scenarios if isinstance(result, SingleStream) and _samples(result)]
    splits: list[TimeSplit] = []
    for piped in streams:
        if piped.at != "pipeline" or not piped.parts_ns:
            continue
        served = [other for other in streams if other.at == "served" and _same(piped, other) and other.server]
        splits.extend(_over_the_wire(piped, other) for other in served)
        if not served:
            splits.append(_in_process(piped))
    return tuple(splits)


def _in_process(piped: SingleStream) -> TimeSplit:
    return TimeSplit(piped.candidate, None, _mean(_samples(piped)), _own_parts(piped))


def _over_the_wire(piped: SingleStream, served: SingleStream) -> TimeSplit:
    server = served.server
    assert server is not None
    own = _own_parts(piped)
    total = _mean(_samples(served))
    queue = server.queue_ns / server.requests
    moved = (server.compute_input_ns + server.compute_output_ns) / server.requests
    infer = server.compute_infer_ns / server.requests
    stage = infer - sum(part.mean_ns for part in own)
    parts = (
        *own,
        TimePart("queue", queue),
        TimePart("stage", stage),
        TimePart("tensors", moved),
        TimePart("wire", total - queue - moved - infer),
    )
    return TimeSplit(served.candidate, served.wire, total, parts)


def _own_parts(piped: SingleStream) -> tuple[TimePart, ...]:
    return (
        TimePart("tokenise", _mean(piped.parts_ns["tokenise"])),
        TimePart("compute", _mean(piped.parts_ns["compute"])),
    )


def _same(piped: SingleStream, other: SingleStream) -> bool:
    alike = piped.texts is not None and other.texts is not None and piped.texts.digest == other.texts.digest
    return alike and piped.candidate == other.candidate


def _samples(result: SingleStream) -> list[int]:
    return [sample for turn in result.rounds for sample in turn.samples_ns]


def _mean(samples: Sequence[int]) -> float:
    return sum(samples) / len(samples)
