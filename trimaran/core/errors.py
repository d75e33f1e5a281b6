"""Every failure that a person must act on, with the exit code a script can rely on.

TrimaranError
├─ UsageError        2  impossible request: unknown key, precision x backend, profile out of range
├─ UnavailableError  3  library, GPU, disk space or server missing; carries the install hint
├─ ValidationError   4  ParityError · SignatureError · QualityError · RepositoryError(problems)
├─ IntegrityError    5  file differs from its manifest; engine built for another GPU
├─ ToolError         6  exporter, builder or tritonserver failed; carries command and log path
│  └─ ChildError        a child process died, hung or ran out of memory; carries the signal's name
└─ ServerError       7  NotReady · RequestFailed · TimedOut · Overloaded

Anything else that escapes is a bug and shows its traceback.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar


@dataclass(eq=False, kw_only=True)
class TrimaranError(Exception):
    """A sentence for the person who must act: what was wanted, what was found, what to do.

    A subclass declares its facts as fields. A fact that is None was not given, and is left out of the JSON.

    Examples:
        >>> try:
        ...     trimaran.load("nothing")
        ... except trimaran.TrimaranError as error:
        ...     error.exit_code
        2
    """

    exit_code: ClassVar[int] = 1

    message: str = field(kw_only=False)
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".rstrip()

    @property
    def facts(self) -> dict[str, Any]:
        """The facts that were given, by name, as JSON values."""
        values = {item.name: getattr(self, item.name) for item in fields(self) if item.name not in ("message", "hint")}
        return {name: _plain(value) for name, value in values.items() if value is not None}

    def as_json(self) -> dict[str, Any]:
        return {
            "kind": type(self).__name__,
            "message": self.message,
            "hint": self.hint,
            "facts": self.facts,
            "exit_code": self.exit_code,
        }


@dataclass(eq=False, kw_only=True)
class UsageError(TrimaranError):
    exit_code: ClassVar[int] = 2

    # The limit that was asked for, and what the model allows.
    wanted: int | None = None
    found: int | None = None
    # The port that is taken.
    port: int | None = None
    # Names of the settings that differ between two reports.
    fields: Sequence[str] | None = None


class UnavailableError(TrimaranError):
    exit_code = 3


@dataclass(eq=False, kw_only=True)
class ValidationError(TrimaranError):
    exit_code: ClassVar[int] = 4

    # The input row that was refused.
    file: str | None = None
    line: int | None = None
    reason: str | None = None
    # How many rows were refused, by reason.
    rejected: dict[str, int] | None = None
    # The recall that an index reached.
    recall: float | None = None
    # The rows of a table of gates.
    rows: Sequence[dict[str, Any]] | None = None
    # The log file of the tool that was asked.
    log: str | None = None


@dataclass(eq=False, kw_only=True)
class ParityError(ValidationError):
    # The output that differs, by how much, and how much was allowed.
    output: str | None = None
    observed: float | None = None
    limit: float | None = None


@dataclass(eq=False, kw_only=True)
class SignatureError(ValidationError):
    # Names of tensors.
    wanted: Sequence[str] | None = None
    found: Sequence[str] | None = None


@dataclass(eq=False, kw_only=True)
class QualityError(ValidationError):
    # What was measured, by metric.
    metrics: dict[str, float] | None = None


@dataclass(eq=False, kw_only=True)
class RepositoryError(ValidationError):
    """Carries every problem of the repository, not only the first."""

    problems: Sequence[Any] = ()
    # The interface that the new version has, and the one that callers know.
    wanted: str | None = None
    found: str | None = None


@dataclass(eq=False, kw_only=True)
class IntegrityError(TrimaranError):
    exit_code: ClassVar[int] = 5

    # The damaged file.
    path: str | None = None
    # The machine that an engine was built for, and this machine.
    wanted: dict[str, Any] | None = None
    found: dict[str, Any] | None = None


@dataclass(eq=False, kw_only=True)
class ToolError(TrimaranError):
    exit_code: ClassVar[int] = 6

    # The tool's log file, its command line, and the sentence in which it gave its reason.
    log: str | None = None
    command: Sequence[str] | None = None
    said: str | None = None
    # The runtime that a TensorRT builder belongs to.
    runtime: str | None = None


@dataclass(eq=False, kw_only=True)
class ChildError(ToolError):
    """A child process ended without an answer."""

    # The name of the signal or of the limit that ended it.
    reason: str = ""


class ServerError(TrimaranError):
    exit_code = 7


@dataclass(eq=False, kw_only=True)
class NotReady(ServerError):
    model: str | None = None
    # The HTTP status, where the server answered at all.
    status: int | None = None
    # Whether the request may have reached the server.
    sent: bool | None = None
    # Whether the model is being loaded again, so that it will be there in a moment.
    reloading: bool | None = None


@dataclass(eq=False, kw_only=True)
class RequestFailed(ServerError):
    # The HTTP status, or the name of the gRPC status.
    status: int | str | None = None
    # The server's own sentence.
    reason: str | None = None


class TimedOut(ServerError):
    pass


class Overloaded(ServerError):
    pass


def error_from_json(data: dict[str, Any]) -> TrimaranError:
    """The error that a child process reported, as the class it was raised with."""
    kind = _classes().get(str(data.get("kind")), TrimaranError)
    known = {item.name for item in fields(kind)} - {"message", "hint"}
    facts = {name: value for name, value in data.get("facts", {}).items() if name in known}
    return kind(str(data.get("message", "")), hint=str(data.get("hint", "")), **facts)


def first_line(error: Exception) -> str:
    """What a foreign error says, short enough for a sentence of ours."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def _classes() -> dict[str, type[TrimaranError]]:
    by_name: dict[str, type[TrimaranError]] = {}
    waiting = [TrimaranError]
    while waiting:
        current = waiting.pop()
        by_name[current.__name__] = current
        waiting.extend(current.__subclasses__())
    return by_name


def _plain(value: Any) -> Any:
    """The value as JSON has it; what JSON has not becomes its text."""
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value if isinstance(value, (str, int, float, bool, dict)) else str(value)


def install_hint(extra: str) -> str:
    """How to install what an extra brings, in the versions that were tried together."""
    return f"pip install 'trimaran[{extra}]' -c \"$(trimaran constraints)\""
