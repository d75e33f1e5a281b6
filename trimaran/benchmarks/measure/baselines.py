"""Eager PyTorch in the settings that its users would try first. Measured beside the candidates, never deployed."""

from __future__ import annotations

import difflib
import functools
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trimaran.benchmarks.measure.runner import RaceEntry
from trimaran.core.artifact import Artifact
from trimaran.core.errors import TrimaranError, UsageError
from trimaran.core.isolation import Worker, first_restriction_that_runs
from trimaran.core.spec import Precision

_PROBE_DEADLINE_S = 60.0
_COMPILERS = ("g++", "clang++", "c++")


def _no_reason() -> str | None:
    return None


def bf16_product() -> float:
    """One product in bf16 as an encoder has them. oneDNN may choose AMX for it, which does not execute on every CPU."""
    import torch

    rows, weights = torch.ones(32, 384, dtype=torch.bfloat16), torch.ones(384, 384, dtype=torch.bfloat16)
    return float(torch.nn.functional.linear(rows, weights).sum())


@functools.cache
def environment_for(probe: Callable[[], object] | None) -> dict[str, str]:
    """Variables under which the probe runs in a child process: none, or a narrower instruction set."""
    if probe is None:
        return {}

    def attempt(restriction: dict[str, str]) -> object:
        with Worker(environment=restriction) as worker:
            return worker.call(probe, _PROBE_DEADLINE_S)

    try:
        return dict(first_restriction_that_runs(attempt)[1])
    except TrimaranError:  # the race shows how it fails
        return {}


def no_compiler() -> str | None:
    """Why torch.compile cannot run here, or None: its CPU code is C++ that is compiled when it is first called."""
    named = os.environ.get("CXX")
    compilers = (named,) if named else _COMPILERS
    if any(shutil.which(name) for name in compilers):
        return None
    return f"torch.compile wants a C++ compiler, and {' or '.join(compilers)} is not on the PATH"


@dataclass(frozen=True)
class Baseline:
    """One setting of eager PyTorch."""

    name: str
    precision: Precision
    # Options of the engine.
    options: tuple[tuple[str, Any], ...]
    describe: str
    # Why it cannot run on this machine, or None.
    why_not: Callable[[], str | None] = _no_reason
    # A small piece of its work, to find an instruction set on which it runs.
    probe: Callable[[], object] | None = None
    # A compiled graph serves one shape, so it cannot be asked hundreds of lengths; in fp32 it computes what eager does.
    judged: bool = True


BASELINES: dict[str, Baseline] = {
    row.name: row
    for row in (
        Baseline(
            "eager-bf16", "bf16", (("dtype", "bfloat16"),), "eager, weights and activations in bf16", probe=bf16_product
        ),
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


# Eager PyTorch on a GPU in the settings that its users would try first.
GPU_BASELINES = (
    Baseline("eager-fp16", "fp16", (("dtype", "float16"),), "eager on the GPU in fp16"),
    Baseline("eager-bf16", "bf16", (("dtype", "bfloat16"),), "eager on the GPU in bf16"),
    Baseline("eager-compiled", "fp32", (("compile", True),), "torch.compile on the GPU, fp32, one graph a shape"),
)


def baselines(names: Sequence[str]) -> tuple[Baseline, ...]:
    for name in names:
        if name not in BASELINES:
            near = difflib.get_close_matches(name, BASELINES, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(BASELINES)}."
            raise UsageError(f"Unknown baseline {name!r}.", hint=hint)
    return tuple(BASELINES[name] for name in dict.fromkeys(names))


def attention_of(reference: Artifact) -> str:
    """transformers' own attention setting. It decides much of eager's speed, so the report states it."""
    return str(reference.engine_options.get("attention", "sdpa"))


def runs_as(reference: Artifact, row: Baseline | None = None) -> str:
    if row is None and reference.format != "torch":
        return f"the given graph, fp32, {reference.backend}"
    how = row.describe if row else "eager, fp32"
    return f"{how}, attention {attention_of(reference)}"


def baseline_entries(
    reference: Artifact, rows: Sequence[Baseline], options: Mapping[str, str] | None = None
) -> list[RaceEntry]:
    """Those that can run here. One that cannot still gets a row with the reason. `options` go to each of them."""
    return [
        RaceEntry(
            row.name,
            reference,
            environment=environment_for(row.probe),
            options={**(options or {}), **dict(row.options)},
        )
        for row in rows
        if row.why_not() is None
    ]
