"""The config of a deployment: a TOML file with flags on top, every key checked before any work."""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field
from pydantic import ValidationError as SchemaError

from trimaran.core.choices import BUDGET_S, Exporter, LabelMetric, Level, Objective
from trimaran.core.devices import ASKED
from trimaran.core.environment import usable_cores
from trimaran.core.errors import UsageError
from trimaran.core.families import STATIC
from trimaran.core.spec import Frozen, ModelRef, Range, RangeField, ShapeProfile

# Tokens of the longest text, where no file of the model says what it reads.
UNSTATED_SEQUENCE = 256
# Models that read thousands of tokens are deployed for this many unless --sequence asks for more: the proof runs the
# largest batch at the longest sequence, and attention grows with its square.
LONGEST_BY_DEFAULT = 512
# A table of token vectors has no attention: its cost grows with the length alone.
LONGEST_OF_TABLES = 2048
# Set to 1, it is as if every command had --busy-ok: for machines that are never quiet, such as those that run tests.
BUSY_OK_VARIABLE = "TRIMARAN_BUSY_OK"
Target = Annotated[str, Field(pattern=r"^[0-9]{1,2}\.[0-9]$")]


def _split_names(value: Any) -> Any:
    """`a, b` as a flag has it, or a list as a file has it."""
    return tuple(name.strip() for name in value.split(",") if name.strip()) if isinstance(value, str) else value


def _split_gates(value: Any) -> Any:
    """`METRIC=NUMBER` strings as flags have them, or a table as a file has it."""
    return value if isinstance(value, Mapping) else gates_from_flags(value)


class DeployConfig(Frozen):
    """What a deployment was asked for. `None` means that the model or the machine decides."""

    model: str
    task: str = "auto"
    family: str | None = None
    # `model` is then `package.module:function`, a function of the user's that builds the model.
    module: bool = False
    pooling: str | None = None
    layers: tuple[int, ...] | None = None
    dimensions: int | None = Field(default=None, ge=1)
    whitening: str | None = None
    normalize: bool | None = None
    extras: tuple[str, ...] = ()
    top_k: int = Field(default=10, ge=1)
    exporter: Exporter | None = None
    output: str = "model_repository"
    name: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    objective: Objective = "latency"
    batch: RangeField | None = None
    sequence: RangeField | None = None
    threads: int = Field(default_factory=usable_cores, ge=1, le=1024)
    fidelity: Level = "strict"
    gates: Annotated[dict[str, float], BeforeValidator(_split_gates)] = {}
    candidates: Annotated[tuple[str, ...], BeforeValidator(_split_names)] = ()
    calibration: str | None = None
    budget: float = Field(default=BUDGET_S, gt=0)
    judging: str | None = None
    data: str | None = None
    metric: LabelMetric | None = None
    # The model that `model` is a student of: candidates must keep the level `distilled` against it as well.
    teacher: str | None = None
    report: str | None = None
    # Where it is proven and timed: `auto`, `cpu`, `cuda` or `cuda:N`.
    device: str = Field(default="auto", pattern=f"^({ASKED.pattern})$")
    # Compute capabilities of GPUs that are not here, such as 8.6: the model is then prepared for them.
    target: Annotated[tuple[Target, ...], BeforeValidator(_split_names)] = ()
    hub: bool = False
    revision: str | None = None
    allow_partial_fusion: bool = False
    # No searched candidates unless they are named, and a short race.
    quick: bool = False
    serve_check: bool = True
    # Put the fp32 graph into the version's folder, for a shadow check on another machine.
    shadow_graph: bool = False
    # Measure speed although other work runs, and say so; else a busy machine is "not measured".
    busy_ok: bool = Field(default_factory=lambda: os.environ.get(BUSY_OK_VARIABLE) == "1")
    # Measure again, when the machine is quiet, what other work disturbed.
    wait_quiet: bool = False
    force: bool = False

    def pooling_changes(self) -> dict[str, Any]:
        """Settings that differ from the model's own pooling."""
        changes = {
            "mode": self.pooling,
            "layers": self.layers,
            "dimensions": self.dimensions,
            "whitening": self.whitening,
            "normalize": self.normalize,
        }
        return {key: value for key, value in changes.items() if value is not None}

    def profile_for(self, ref: ModelRef) -> ShapeProfile:
        """The shapes of the config; by default what the model was trained for."""
        most = LONGEST_OF_TABLES if ref.family == STATIC.name else LONGEST_BY_DEFAULT
        longest = min(ref.default_sequence or UNSTATED_SEQUENCE, most, ref.positions)
        return ShapeProfile(
            batch=self.batch or Range(minimum=1, typical=1, maximum=32),
            sequence=self.sequence or Range(minimum=1, typical=min(128, longest), maximum=longest),
        )


def deploy_config(flags: Mapping[str, Any], *, file: Path | None = None) -> DeployConfig:
    """Merges a TOML file with the flags that were given (not None); unknown keys name their nearest neighbour."""
    merged = {**(read_toml(file) if file else {}), **{key: value for key, value in flags.items() if value is not None}}
    refuse_unknown(merged, DeployConfig.model_fields, where=str(file) if file else "the flags")
    if "model" not in merged:
        raise UsageError("No model was named.", hint='Pass -m MODEL, or put model = "…" into the config file.')
    try:
        return DeployConfig.model_validate(merged)
    except SchemaError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise UsageError(f"The setting {key} is not right: {first['msg']} (found {first.get('input')!r}).") from error


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"The config file {path} cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"The config file {path} is not TOML: {error}.") from error


def refuse_unknown(keys: Iterable[str], known: Iterable[str], *, where: str) -> None:
    names = list(known)
    for key in keys:
        if key not in names:
            near = difflib.get_close_matches(key, names, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(names)}."
            raise UsageError(f"Unknown key {key!r} in {where}.", hint=hint)


def gates_from_flags(pairs: Iterable[str]) -> dict[str, float]:
    """`--gate neighbour_overlap=0.96` into limits by metric."""
    gates: dict[str, float] = {}
    for pair in pairs:
        metric, _, limit = pair.partition("=")
        try:
            gates[metric.strip()] = float(limit)
        except ValueError as error:
            raise UsageError(f"A gate is METRIC=NUMBER, found {pair!r}.") from error
    return gates
