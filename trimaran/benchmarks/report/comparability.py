"""Whether numbers of two reports may be compared: machine, versions, threads and pinning must be alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from trimaran.benchmarks.report.report import Report
from trimaran.core.errors import UsageError

_GIB = 1 << 30


class UnlikeCondition(NamedTuple):
    """One condition under which two reports were measured differently."""

    field: str
    first: str
    second: str

    def __str__(self) -> str:
        return f"{self.field}: {self.first} and {self.second}"


def unlike(first: Report, second: Report) -> tuple[UnlikeCondition, ...]:
    """Every condition that differs, in the order in which it is likely to matter."""
    mine, theirs = _conditions(first), _conditions(second)
    return tuple(
        UnlikeCondition(field, mine.get(field, "absent"), theirs.get(field, "absent"))
        for field in dict.fromkeys((*mine, *theirs))
        if mine.get(field) != theirs.get(field)
    )


def require_alike(
    reports: Sequence[Report], *, allow_unlike: bool = False, two_models: bool = False
) -> tuple[UnlikeCondition, ...]:
    """What differs between the first report and the others. Raises UsageError unless unlike reports are allowed.

    A caller that allows them, or with `two_models` other models for the same task, must show the returned conditions
    beside the numbers.
    """
    conditions = tuple(dict.fromkeys(difference for other in reports[1:] for difference in unlike(reports[0], other)))
    refused = [condition for condition in conditions if not (two_models and condition.field == "model")]
    if refused and not allow_unlike:
        raise UsageError(
            f"The reports were not measured under like conditions: {'; '.join(map(str, refused))}.",
            hint="Measure both on one machine with the same versions and threads, or allow unlike ones (--unlike).",
            fields=[condition.field for condition in refused],
        )
    return conditions


def _conditions(report: Report) -> dict[str, str]:
    environment = report.environment
    facts: dict[str, Any] = {
        "model": report.model,
        "task": report.task,
        "cpu": environment.cpu,
        "gpu": environment.gpu or "none",
        "cores": environment.cores,
        "threads": report.threads,
        "pinned cores": ", ".join(map(str, report.cores)) or "none",
        # A kernel that reserves a little more is not another machine.
        "memory": f"{environment.memory_bytes / _GIB:.0f} GiB",
        "system": environment.system,
        "python": environment.python,
        **environment.libraries,
    }
    return {name: str(value) for name, value in facts.items()}
