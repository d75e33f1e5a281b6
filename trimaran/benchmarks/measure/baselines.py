"""Eager PyTorch in the settings that its users would try first: measured beside the candidates, never deployed."""

from __future__ import annotations

import difflib
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from trimaran.benchmarks.measure.runner import ContenderOutcome, RaceEntry
from trimaran.benchmarks.report.report import CandidateRow
from trimaran.core.artifact import Artifact
from trimaran.core.errors import UsageError
from trimaran.core.spec import Precision
from trimaran.judging.judgement import Quality

_COMPILERS = ("g++", "clang++", "c++")


def _no_reason() -> str | None:
    return None


def no_compiler() -> str | None:
    """None, or why torch.compile cannot run here: its CPU code is C++ that is compiled on the spot."""
    named = os.environ.get("CXX")
    wanted = (named,) if named else _COMPILERS
    if any(shutil.which(name) for name in wanted):
        return None
    return f"torch.compile wants a C++ compiler, and {' or '.join(wanted)} is not on the PATH"


@dataclass(frozen=True)
class Baseline:
    name: str
    precision: Precision
    options: tuple[tuple[str, Any], ...]
    describe: str
    why_not: Callable[[], str | None] = _no_reason
    # One graph a shape cannot be asked hundreds of lengths; in fp32 it computes what eager computes.
    judged: bool = True


BASELINES: dict[str, Baseline] = {
    row.name: row
    for row in (
        Baseline("eager-bf16", "bf16", (("dtype", "bfloat16"),), "eager, weights and activations in bf16"),
        Baseline(
            "eager-compiled",
            "fp32",
            (("compile", True),),
            "torch.compile, fp32, one graph a shape",
            no_compiler,
            judged=False,
        ),
    )
}


def baselines(names: Sequence[str]) -> tuple[Baseline, ...]:
    for name in names:
        if name not in BASELINES:
            near = difflib.get_close_matches(name, BASELINES, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(BASELINES)}."
            raise UsageError(f"Unknown baseline {name!r}.", hint=hint)
    return tuple(BASELINES[name] for name in dict.fromkeys(names))


def attention_of(reference: Artifact) -> str:
    """transformers' own attention setting, which decides much of eager's speed and is therefore stated."""
    return str(reference.engine_options.get("attention", "sdpa"))


def runs_as(reference: Artifact, row: Baseline | None = None) -> str:
    how = row.describe if row else "eager, fp32"
    return f"{how}, attention {attention_of(reference)}"


def baseline_entries(reference: Artifact, rows: Sequence[Baseline]) -> list[RaceEntry]:
    """Those that can run here; one that cannot gets its row with the reason all the same."""
    return [RaceEntry(row.name, reference, options=dict(row.options)) for row in rows if row.why_not() is None]


def baseline_row(
    reference: Artifact, row: Baseline, outcome: ContenderOutcome | None, quality: Quality | None = None
) -> CandidateRow:
    failure = row.why_not() or (outcome and outcome.failure) or None
    said = f"It cannot run here: {failure}" if row.why_not() else failure
    return CandidateRow(
        name=row.name,
        backend=reference.backend,
        precision=row.precision,
        verdict="failed" if failure else "baseline",
        reason=f"{(said or 'Another setting of the same PyTorch model, not a candidate').rstrip('.')}.",
        artifact=reference.digest,
        quality=quality,
        peak_memory_bytes=(outcome and outcome.peak_memory_bytes) or None,
        load_s=outcome.load_s if outcome else None,
        runs_as=runs_as(reference, row),
    )
