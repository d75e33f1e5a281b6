"""The shadow process: answers sampled requests once more with the fp32 graph, and says how far the answers moved.

It runs at the lowest priority and ends when its parent does. Texts are only in its memory. Its state file has numbers.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import select
import socket
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError as SchemaError

from trimaran.core.artifact import MANIFEST, Artifact
from trimaran.core.backends import open_session
from trimaran.core.corpus import answering_of
from trimaran.core.errors import TrimaranError, UsageError
from trimaran.core.shadow_graph import shadow_graph
from trimaran.core.store import Store, default_home, write_atomically
from trimaran.core.tasks import task
from trimaran.judging.final_answers import answer_row
from trimaran.judging.golden import GOLDEN_FILE, Golden, read_golden
from trimaran.judging.shadow_evidence import ALARM_AT, ShadowEvidence, ShadowGate, ShadowState, shadow_gate
from trimaran.runtime.answers import Answering
from trimaran.runtime.shadow import MESSAGE_BYTES, SOCKET, decoded

_LOWEST_PRIORITY = 19
_WRITE_EVERY_S = 1.0
# The part of a stage that hands out samples; versions that were laid out before lack it.
_STAGE_FILE = "shadow.py"
# One change of a metric: kind, name, description, labels, value.
Change = tuple[str, str, str, dict[str, str], float]

log = logging.getLogger(__name__)


class Checked(NamedTuple):
    """A version whose answers can be checked."""

    golden: Golden
    gate: ShadowGate
    # The fp32 graph.
    graph: Artifact


def checked(version: Path, store: Store) -> Checked:
    """Raises UsageError for a version that cannot be checked, with the reason and the remedy."""
    name = f"{version.parent.name} version {version.name}"
    if not (version / MANIFEST).is_file():
        raise UsageError(f"{name} was not laid out by trimaran.")
    if not (version / _STAGE_FILE).is_file():
        raise UsageError(f"The stage of {name} hands out no samples.", hint="Deploy the model again.")
    if not (version / GOLDEN_FILE).is_file():
        raise UsageError(f"{name} has no golden bundle, which says its gates.", hint="`trimaran deploy` makes one.")
    golden = read_golden(version / GOLDEN_FILE)
    gate = shadow_gate(golden)
    if gate is None:
        raise UsageError(f"{name} has no gate that one answer can keep or break.")
    return Checked(golden, gate, shadow_graph(version, store))


class Shadow:
    """What is known of each version that samples came from."""

    def __init__(self, repository: Path, state_path: Path) -> None:
        self._repository, self._state_path = repository, state_path
        self._store = Store(default_home() / "store")
        self._sessions = contextlib.ExitStack()
        self._opened: dict[str, tuple[Checked, Answering]] = {}
        self._seen: dict[str, ShadowEvidence] = {}
        self._written, self._written_s = ShadowState(), 0.0
        # What an earlier shadow of the same server saw still counts.
        with contextlib.suppress(OSError, SchemaError):
            before = ShadowState.model_validate_json(state_path.read_bytes())
            self._seen = {_key(seen.model, seen.version): seen for seen in before.versions if not seen.problem}

    def check(self, message: dict[str, Any]) -> list[Change]:
        """Compares one sample with the fp32 graph's answer. Why a version cannot be opened is noted."""
        key = _key(message["model"], message["version"])
        if key not in self._opened:
            self._seen[key] = self._open(message["model"], message["version"])
        if self._seen[key].problem:
            return []
        (golden, gate, _), answering = self._opened[key]
        served_task = task(golden.task).served
        wanted = served_task.tensors([answer_row(served_task, answering, message["row"])])
        served = {name: decoded(array) for name, array in message["answer"].items()}
        distance = gate.distance(golden, wanted, served)
        if distance is None:
            return []
        before = self._seen[key]
        after = self._seen[key] = before.after(distance)
        if after.alarm and not before.alarm:
            log.error("Shadow check: %s. Compare with `trimaran verify`, or go back with `trimaran promote`.", after)
            self.write()
        return [*_histogram(gate, distance), *_evidence_changes(before, after)]

    def write(self, *, every_s: float = 0.0) -> None:
        """The state file if anything changed, at most so often. A full disk must not end the check."""
        state = ShadowState(versions=tuple(self._seen.values()))
        if state != self._written and time.monotonic() - self._written_s >= every_s:
            self._written, self._written_s = state, time.monotonic()
            with contextlib.suppress(OSError):
                write_atomically(self._state_path, state.model_dump_json())

    def close(self) -> None:
        self.write()
        self._sessions.close()

    def _open(self, model: str, version: str) -> ShadowEvidence:
        known = self._seen.get(_key(model, version), ShadowEvidence(model=model, version=version))
        if known.problem:
            return known
        folder = self._repository / model / version
        try:
            comparison = checked(folder, self._store)
            session = self._sessions.enter_context(open_session(comparison.graph, threads=1))
        except Exception as error:  # whatever an engine says of a graph: it is not tried again for every sample
            problem = str(error) if isinstance(error, TrimaranError) else f"Its fp32 graph does not open: {error}"
            log.warning("Shadow check: %s version %s is not checked: %s", model, version, problem)
            return known.model_copy(update={"problem": problem})
        self._opened[_key(model, version)] = comparison, answering_of(comparison.graph, session.infer)
        gate = comparison.gate
        return known.model_copy(update={"metric": gate.metric.name, "limit": gate.limit, "may_move": gate.may_move})


def _key(model: str, version: str) -> str:
    return f"{model}/{version}"


def _histogram(gate: ShadowGate, distance: float) -> list[Change]:
    """Triton 24.10 has no histograms for Python models: these counters are what Prometheus makes of one."""
    text, by_metric = "Distance of live answers from the fp32 graph's.", {"metric": gate.metric.name}
    name = "trimaran_shadow_distance"
    ends = [f"{end:g}" for end in gate.buckets if distance <= end]
    return [
        *(("COUNTER", f"{name}_bucket", text, {**by_metric, "le": end}, 1.0) for end in (*ends, "+Inf")),
        ("COUNTER", f"{name}_count", text, by_metric, 1.0),
        # An infinite sum would hide all later distances.
        ("COUNTER", f"{name}_sum", text, by_metric, distance if distance < float("inf") else 1.0),
        ("GAUGE", "trimaran_shadow_gate", "The distance that a proven model keeps.", by_metric, gate.limit),
    ]


def _evidence_changes(before: ShadowEvidence, after: ShadowEvidence) -> list[Change]:
    evidence = f"Evidence that more answers moved beyond the gate than were proven; an alarm at {ALARM_AT:g}."
    alarms = "Versions whose evidence reached the alarm."
    moved = "Checked answers that moved beyond the gate."
    return [
        ("GAUGE", "trimaran_shadow_evidence", evidence, {}, after.evidence),
        ("COUNTER", "trimaran_shadow_moved", moved, {}, float(after.moved - before.moved)),
        ("COUNTER", "trimaran_shadow_alarms", alarms, {}, float(after.alarm and not before.alarm)),
    ]


def run(folder: Path, repository: Path, state_path: Path) -> None:
    """Checks samples until standard input closes."""
    address = folder / SOCKET
    address.unlink(missing_ok=True)
    shadow = Shadow(repository, state_path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as samples, contextlib.closing(shadow):
        samples.bind(str(address))
        while True:
            ready, _, _ = select.select([samples, sys.stdin], [], [], _WRITE_EVERY_S)
            if sys.stdin in ready:
                return
            if samples in ready:
                _answer(shadow, samples)
            shadow.write(every_s=_WRITE_EVERY_S)


def _answer(shadow: Shadow, samples: socket.socket) -> None:
    message, sender = samples.recvfrom(MESSAGE_BYTES)
    try:
        changes = shadow.check(json.loads(message))
    except Exception as error:
        # Its words may hold the text; its type does not.
        log.warning("Shadow check: a sample could not be compared (%s).", type(error).__name__)
        return
    # The stage may be gone, or slow to read.
    with contextlib.suppress(OSError):
        if changes and sender:
            samples.sendto(json.dumps(changes).encode(), socket.MSG_DONTWAIT, sender)


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("folder", "repository", "state_path"):
        parser.add_argument(name, type=Path)
    arguments = parser.parse_args()
    os.nice(_LOWEST_PRIORITY)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    run(**vars(arguments))


if __name__ == "__main__":
    main()
