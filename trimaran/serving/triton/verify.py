"""Whether a live endpoint gives the answers that eager PyTorch gave, measured by the task's own metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from trimaran.core.errors import QualityError
from trimaran.core.spec import Frozen
from trimaran.core.tasks import Gate
from trimaran.core.tasks.task import BATCH_CHANGE, RequestRow, WireTensors
from trimaran.judging.gate_check import GateCheck, point_check
from trimaran.judging.golden import Golden, columns_of
from trimaran.judging.golden_checks import group_checks, whole_checks
from trimaran.judging.wire_fidelity import wire_change, wire_fidelity
from trimaran.serving.client.question import Ask, Model
from trimaran.serving.client.synchronous import Client

_SENT_ALONE = 16


class Verification(Frozen):
    """What was measured over the wire, and the limits."""

    name: str
    rows: int
    metrics: dict[str, float]
    # Over all requests.
    checks: tuple[GateCheck, ...]
    # The same for the requests of each prompt and of each kind of text, such as "prompt query" or "kind headline".
    by_group: dict[str, tuple[GateCheck, ...]] = {}

    @property
    def holds(self) -> bool:
        return not self.broken

    @property
    def broken(self) -> tuple[GateCheck, ...]:
        groups = (check for checks in self.by_group.values() for check in checks)
        return tuple(check for check in (*self.checks, *groups) if not check.holds)


def verify(client: Client, name: str, golden: Golden, *, callers: int = 0) -> Verification:
    """Sends every row of the bundle in full requests, and a few rows alone too.

    With `callers`, that many threads send one row per request instead, and the server forms the batches.
    """
    outputs = [item.name for item in golden.answers]
    if callers:
        with ThreadPoolExecutor(callers) as pool:
            together = joined(list(pool.map(lambda row: ask(client, name, [row], outputs=outputs), golden.rows)))
    else:
        together = ask(client, name, golden.rows, outputs=outputs)
    wanted = golden.tensors
    _require_same_kind(name, wanted, together)
    metrics = wire_fidelity(golden.task, golden.numbers, wanted, together)
    few = golden.rows[:_SENT_ALONE]
    alone = joined([ask(client, name, [row], outputs=list(wanted)) for row in few])
    metrics[BATCH_CHANGE] = wire_change(golden.task, golden.numbers, _cut(together, len(few)), alone)
    return Verification(
        name=name,
        rows=len(golden.rows),
        metrics=metrics,
        checks=(*whole_checks(golden, together), *_batch_checks(golden, metrics[BATCH_CHANGE])),
        by_group=group_checks(golden, together),
    )


def _batch_checks(golden: Golden, change: float) -> tuple[GateCheck, ...]:
    return tuple(
        point_check(Gate(limit.metric, limit.comparison, limit.limit), change)
        for limit in golden.limits
        if limit.metric == BATCH_CHANGE
    )


def require_faithful(verification: Verification) -> None:
    """Raises QualityError with every limit that is broken."""
    if broken := verification.broken:
        limits = ", ".join(
            f"{check.name} {_short(check.observed)}, wanted {check.comparison} {check.limit:g} {check.detail}".rstrip()
            for check in broken
        )
        raise QualityError(
            f"As served, {verification.name} is not what was proven: {limits}.",
            hint="Serve with the libraries that the artifact's manifest names, and the version that was proven.",
            metrics=verification.metrics,
        )


def ask(client: Client, name: str, rows: Sequence[RequestRow], *, outputs: Sequence[str]) -> WireTensors:
    """The outputs for all rows, in as few requests as the model's batch allows."""

    def build(model: Model) -> Ask[WireTensors]:
        size = model.max_batch_size
        requests = tuple(columns_of(rows[begin : begin + size]) for begin in range(0, len(rows), size))
        return Ask(requests, tuple(outputs), joined)

    return client.ask(name, build)


def joined(parts: Sequence[WireTensors]) -> WireTensors:
    """The parts of one answer. Rows of different widths are filled up as the wire contract says."""
    return {name: _stacked([part[name] for part in parts]) for name in parts[0]}


def _stacked(arrays: Sequence[np.ndarray]) -> np.ndarray:  # type: ignore[type-arg]
    shape = tuple(max(sizes) for sizes in zip(*(array.shape[1:] for array in arrays), strict=True))
    kind = arrays[0].dtype
    fill = b"" if kind == np.object_ else -1 if kind == np.int64 else 0
    whole = np.full((sum(map(len, arrays)), *shape), fill, kind)
    begin = 0
    for array in arrays:
        whole[(slice(begin, begin + len(array)), *(slice(size) for size in array.shape[1:]))] = array
        begin += len(array)
    return whole


def _require_same_kind(name: str, wanted: WireTensors, served: WireTensors) -> None:
    """Raises QualityError where no metric can be computed: other labels, or vectors of another width."""
    labels = [
        {bytes(label) for label in side["LABELS"].ravel()} if "LABELS" in side else set() for side in (wanted, served)
    ]
    if labels[0] != labels[1]:
        words = [", ".join(sorted(label.decode() for label in side)) for side in labels]
        raise QualityError(f"{name} was proven with the labels {words[0]}; the server has {words[1]}.")
    if "EMBEDDING" in wanted and wanted["EMBEDDING"].shape != served["EMBEDDING"].shape:
        shapes = [side["EMBEDDING"].shape[1:] for side in (wanted, served)]
        raise QualityError(f"{name} was proven with vectors of shape {shapes[0]}; the server gives {shapes[1]}.")


def _cut(tensors: WireTensors, rows: int) -> Mapping[str, np.ndarray]:  # type: ignore[type-arg]
    return {name: array[:rows] for name, array in tensors.items()}


def _short(value: float | int | str) -> str:
    return value if isinstance(value, str) else f"{value:.3g}"
