"""What a candidate costs besides time: its start, its memory, its size on disk, its energy."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trimaran.benchmarks.measure.energy import EnergyCounter, find_counter
from trimaran.benchmarks.measure.runner import RaceEntry
from trimaran.benchmarks.scenarios import results
from trimaran.benchmarks.scenarios.in_process import Probes
from trimaran.benchmarks.scenarios.results import EnergyPass, ProcessStart, ScenarioResult, TextsUsed
from trimaran.benchmarks.scenarios.settings import ColdStartSettings, EnergySettings, SuiteUnit
from trimaran.core.artifact import Artifact
from trimaran.core.errors import TrimaranError
from trimaran.core.progress import Step
from trimaran.core.spec import ModelRef
from trimaran.judging.probe_process import ProbeProcess
from trimaran.runtime.text import Array

# A start must give the answer that was judged before. The same engine differs by rounding at most.
SAME_ANSWER = 1e-3
_IDLE_S = 1.0
_ENOUGH_S = 1.0


def run_footprint(
    unit: SuiteUnit, entries: Sequence[RaceEntry], probes: Probes, *, step: Step | None = None
) -> list[ScenarioResult]:
    """One result for each contender; one that cannot run says why in `cut`."""
    measured: list[ScenarioResult] = []
    for done, entry in enumerate(entries):
        if step:
            step.advance(done, len(entries), entry.name)
        head = {
            "candidate": entry.name,
            "at": unit.at,
            "threads": probes.threads,
            "artifact": entry.artifact.digest,
            "rows": entry.rows,
        }
        measured.append(MAKERS[unit.asked.scenario](head, unit.asked, entry, probes))
    return measured


def cut_head(why: str | None) -> dict[str, Any]:
    return {"cut": why, "cut_by": "process" if why else None}


def distance(expected: Mapping[str, Array], answers: Mapping[str, Array]) -> float:
    """The largest relative difference of an output. Positions without a token (NaN) do not count."""
    worst = 0.0
    for name, output in expected.items():
        if name not in answers or answers[name].shape != output.shape:
            return float("inf")
        before, now = (np.nan_to_num(side.astype(np.float64)) for side in (output, answers[name]))
        worst = max(worst, float(np.linalg.norm(before - now)) / max(float(np.linalg.norm(before)), 1e-30))
    return worst


def _cold_start(head: dict[str, Any], settings: ColdStartSettings, entry: RaceEntry, probes: Probes) -> ScenarioResult:
    text = [probes.texts[0]]
    starts: list[ProcessStart] = []
    cut, used = None, None
    try:
        used, expected = probes.known(entry)
        for _ in range(settings.starts):
            begun_ns = time.perf_counter_ns()
            with probes.fresh(entry, verify=False) as started:
                opened_ns = time.perf_counter_ns()
                answers = started.answers(text, entry.rows)
                elapsed_ns = time.perf_counter_ns() - begun_ns
                load_ns = int(started.load_s * 1e9)
            apart = distance(expected, answers)
            parts = {
                "process": opened_ns - begun_ns - load_ns,
                "libraries and model": load_ns,
                "first answer": elapsed_ns - (opened_ns - begun_ns),
            }
            starts.append(
                ProcessStart(elapsed_ns=elapsed_ns, parts_ns=parts, correct=apart <= SAME_ANSWER, distance=apart)
            )
    except TrimaranError as error:
        cut = str(error)
    return results.ColdStart(**head, starts=tuple(starts), texts=one_text(used), **cut_head(cut))


def one_text(used: TextsUsed | None) -> TextsUsed | None:
    return used.model_copy(update={"source": f"first of {used.source}", "n": 1}) if used else None


def _memory(head: dict[str, Any], settings: Any, entry: RaceEntry, probes: Probes) -> ScenarioResult:
    cut, peak, resident = None, 0, {}
    try:
        with probes.fresh(entry) as probe:
            resident = probe.resident()
            probe.take_texts(probes.texts, entry.rows)
            probe.run_texts("offline", at="pipeline")
            peak = probe.peak_memory_bytes
    except TrimaranError as error:
        cut = str(error)
    return results.Memory(**head, peak_bytes=peak, **resident, **cut_head(cut))


def _size(head: dict[str, Any], settings: Any, entry: RaceEntry, probes: Probes) -> ScenarioResult:
    return results.SizeOnDisk(**head, files=engine_files(entry.artifact))


def engine_files(artifact: Artifact) -> dict[str, int]:
    """What the engine reads; for eager PyTorch the weights, which stay where the user keeps them."""
    if artifact.format != "torch":
        return {file.name: file.size_bytes for file in artifact.files if not file.name.startswith("tokenizer")}
    ref = ModelRef.model_validate_json(artifact.entry_path.read_text(encoding="utf-8"))
    folder = Path(ref.directory)
    weights = sorted(folder.glob("*.safetensors")) or sorted(folder.glob("*.bin"))
    return {path.name: path.stat().st_size for path in weights}


def _energy(head: dict[str, Any], settings: EnergySettings, entry: RaceEntry, probes: Probes) -> ScenarioResult:
    counter = find_counter()
    if not isinstance(counter, EnergyCounter):
        return results.Energy(**head, unavailable=counter)
    passes: list[EnergyPass] = []
    cut, used = None, None
    begun_uj = counter.read_uj()
    time.sleep(_IDLE_S)
    idle_watts = counter.joules_between(begun_uj, counter.read_uj()) / _IDLE_S
    try:
        probe, used = probes.open(entry)
        probe.run_texts("offline", at="pipeline")
        passes = [metered(counter, probe) for _ in range(settings.rounds)]
    except TrimaranError as error:
        cut = str(error)
    return results.Energy(
        **head, passes=tuple(passes), idle_watts=idle_watts, counter=counter.name, texts=used, **cut_head(cut)
    )


def metered(counter: EnergyCounter, probe: ProbeProcess) -> EnergyPass:
    """Whole passes over the texts, for long enough: the counter is updated a thousand times a second."""
    texts, begun_ns, before = 0, time.perf_counter_ns(), counter.read_uj()
    while time.perf_counter_ns() - begun_ns < _ENOUGH_S * 1e9:
        texts += int(probe.run_texts("offline", at="pipeline")["texts"])
    joules = counter.joules_between(before, counter.read_uj())
    return EnergyPass(joules=joules, elapsed_ns=time.perf_counter_ns() - begun_ns, texts=texts)


MAKERS: dict[str, Callable[[dict[str, Any], Any, RaceEntry, Probes], ScenarioResult]] = {
    "cold-start": _cold_start,
    "memory": _memory,
    "size": _size,
    "energy": _energy,
}
