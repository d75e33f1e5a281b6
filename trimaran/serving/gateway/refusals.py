"""Refusals: an HTTP status, a code for programs and a sentence for people, in the shape of OpenAI's API."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from starlette.exceptions import HTTPException

from trimaran.core.errors import NotReady, Overloaded, RequestFailed, TimedOut, TrimaranError, UsageError


class Refusal(Exception):
    """`retry_after_s` becomes the Retry-After header; `param` names the field that is wrong."""

    def __init__(
        self, status: int, code: str, message: str, *, param: str | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s

    def body(self, request_id: str) -> dict[str, Any]:
        return {
            "error": {
                "message": self.message,
                "type": "server_error" if self.status >= 500 else "invalid_request_error",
                "param": self.param,
                "code": self.code,
                "request_id": request_id,
            }
        }


def unauthorized() -> Refusal:
    """The same sentence for a missing, a malformed and a wrong key, so that a guess learns nothing."""
    return Refusal(401, "invalid_api_key", "A valid key is required: Authorization: Bearer KEY.")


def too_large(what: str, actual: int, limit: int, *, param: str | None = None) -> Refusal:
    return Refusal(413, "too_large", f"{what}: {actual:,}. The limit is {limit:,}.", param=param)


def invalid(message: str, *, param: str | None = None) -> Refusal:
    return Refusal(422, "invalid_value", message, param=param)


def model_not_found(tasks: tuple[str, ...], names: Sequence[str]) -> Refusal:
    """`names` are those of the models that would do."""
    known = f"There is: {', '.join(names)}." if names else "None is served."
    return Refusal(404, "model_not_found", f"There is no such model for {' or '.join(tasks)}. {known}", param="model")


def overloaded(message: str) -> Refusal:
    return Refusal(503, "overloaded", message, retry_after_s=1.0)


def not_ready(message: str = "The model is not ready. Send again later.") -> Refusal:
    return Refusal(503, "not_ready", message, retry_after_s=2.0)


def timed_out() -> Refusal:
    return Refusal(504, "timeout", "No answer in time. Send fewer texts, or again later.", retry_after_s=1.0)


def refusal_from(error: Exception) -> Refusal | None:
    """What a caller may know about an error: never an address, never a path. None for a fault of the gateway."""
    return next((make(error) for kind, make in _REFUSALS if isinstance(error, kind)), None)


def _from_routing(error: HTTPException) -> Refusal:
    if error.status_code == 405:
        return Refusal(405, "method_not_allowed", f"This path takes {(error.headers or {}).get('Allow', 'GET')}.")
    return Refusal(404, "not_found", "There is nothing at this path.")


def _from_model(error: TrimaranError) -> Refusal:
    if isinstance(error, RequestFailed) and error.status in ("INVALID_ARGUMENT", "400"):
        return invalid(error.reason or "The model refused the request.")
    return Refusal(502, "upstream_failed", "The model failed to answer this request.")


# The first row that fits an error decides.
_REFUSALS: tuple[tuple[type[Exception], Callable[[Any], Refusal]], ...] = (
    (Refusal, lambda refusal: refusal),
    (HTTPException, _from_routing),
    (Overloaded, lambda error: overloaded("There are more requests than can be answered. Send again later.")),
    (TimedOut, lambda error: timed_out()),
    (NotReady, lambda error: not_ready()),
    (UsageError, lambda error: invalid(error.message)),
    (TrimaranError, _from_model),
)
