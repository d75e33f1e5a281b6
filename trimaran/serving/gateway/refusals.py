"""Why a request is refused: a status, a code for programs and a sentence for people, in the shape OpenAI's API uses."""

from __future__ import annotations

from typing import Any

from trimaran.core.errors import NotReady, Overloaded, RequestFailed, TimedOut, TrimaranError, UsageError

_OURS = 500


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
        kind = "server_error" if self.status >= _OURS else "invalid_request_error"
        return {
            "error": {
                "message": self.message,
                "type": kind,
                "param": self.param,
                "code": self.code,
                "request_id": request_id,
            }
        }


def unauthorized() -> Refusal:
    """One sentence for a missing, a malformed and a wrong key: a guess learns nothing."""
    return Refusal(401, "invalid_api_key", "A valid key is wanted: Authorization: Bearer KEY.")


def too_large(what: str, found: int, limit: int, *, param: str | None = None) -> Refusal:
    return Refusal(413, "too_large", f"{what}: {found:,}, and at most {limit:,} are taken.", param=param)


def invalid(message: str, *, param: str | None = None) -> Refusal:
    return Refusal(422, "invalid_value", message, param=param)


def overloaded(message: str, *, retry_after_s: float = 1.0) -> Refusal:
    return Refusal(503, "overloaded", message, retry_after_s=retry_after_s)


def from_error(error: TrimaranError) -> Refusal:
    """What a caller may know of a failure behind the gateway: never an address, never a path."""
    if isinstance(error, Overloaded):
        return overloaded("More requests than can be answered. Send again later.")
    if isinstance(error, TimedOut):
        return Refusal(504, "timeout", "No answer in time. Send fewer texts, or again later.", retry_after_s=1.0)
    if isinstance(error, NotReady):
        return Refusal(503, "not_ready", "The model is not ready. Send again later.", retry_after_s=2.0)
    if isinstance(error, UsageError):
        return invalid(error.message)
    if isinstance(error, RequestFailed) and error.status in ("INVALID_ARGUMENT", "400"):
        return invalid(error.reason or "The model refused the request.")
    return Refusal(502, "upstream_failed", "The model failed to answer this request.")
