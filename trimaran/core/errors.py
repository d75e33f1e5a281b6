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

from typing import Any


class TrimaranError(Exception):
    """A sentence for the person who must act: what was wanted, what was found, what to do."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "", **facts: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.facts = facts

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".rstrip()

    def as_json(self) -> dict[str, Any]:
        return {
            "kind": type(self).__name__,
            "message": self.message,
            "hint": self.hint,
            "facts": {key: _plain(value) for key, value in self.facts.items()},
            "exit_code": self.exit_code,
        }


class UsageError(TrimaranError):
    exit_code = 2


class UnavailableError(TrimaranError):
    exit_code = 3


class ValidationError(TrimaranError):
    exit_code = 4


class ParityError(ValidationError):
    pass


class SignatureError(ValidationError):
    pass


class QualityError(ValidationError):
    pass


class RepositoryError(ValidationError):
    """Carries every problem found, not only the first."""

    def __init__(self, message: str, *, problems: tuple[Any, ...] = (), hint: str = "", **facts: Any) -> None:
        super().__init__(message, hint=hint, problems=[str(problem) for problem in problems], **facts)
        self.problems = problems


class IntegrityError(TrimaranError):
    exit_code = 5


class ToolError(TrimaranError):
    exit_code = 6


class ChildError(ToolError):
    """A child process ended without an answer; `reason` is the signal's or the limit's name."""

    def __init__(self, message: str, *, reason: str = "", hint: str = "", **facts: Any) -> None:
        super().__init__(message, hint=hint, reason=reason, **facts)
        self.reason = reason


class ServerError(TrimaranError):
    exit_code = 7


class NotReady(ServerError):
    pass


class RequestFailed(ServerError):
    pass


class TimedOut(ServerError):
    pass


class Overloaded(ServerError):
    pass


def error_from_json(data: dict[str, Any]) -> TrimaranError:
    """The error that a child process reported, as the class it was raised with."""
    kind = _classes().get(str(data.get("kind")), TrimaranError)
    error = kind(str(data.get("message", "")), hint=str(data.get("hint", "")))
    error.facts = dict(data.get("facts", {}))
    return error


def first_line(error: Exception) -> str:
    """What a foreign error says, short enough for a sentence of ours."""
    said = str(error).strip()
    return said.splitlines()[0] if said else type(error).__name__


def _classes() -> dict[str, type[TrimaranError]]:
    found: dict[str, type[TrimaranError]] = {}
    waiting = [TrimaranError]
    while waiting:
        current = waiting.pop()
        found[current.__name__] = current
        waiting.extend(current.__subclasses__())
    return found


def _plain(value: Any) -> Any:
    return value if isinstance(value, (str, int, float, bool, list, dict, type(None))) else str(value)
