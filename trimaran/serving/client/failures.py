"""The one border at which errors of transports and of Triton become ours."""

from __future__ import annotations

import random

from trimaran.core.errors import NotReady, Overloaded, RequestFailed, ServerError, TimedOut

# What gRPC says when no connection stood, so that nothing of the request can have been read.
_UNSENT = ("failed to connect to all addresses", "connection refused", "dns resolution failed", "name resolution")
# What Triton says, with status 404 or 500, of a model that is being loaded again, or unloaded as the server drains:
# the request was never computed, and a moment later the model may be there.
_MENDING = ("has no available versions", "is not healthy")
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0


def from_status(url: str, protocol: str, status: str, message: str, *, timeout_s: float) -> ServerError:
    """`status` as tritonclient gives it: a gRPC code or an HTTP number."""
    code = status.removeprefix("StatusCode.")
    said = message.rstrip(".")
    if "maximum queue size" in message or "timeout expired" in message.lower():
        return Overloaded(
            f"{url} has more requests than it can answer: {said}.",
            hint="Wait and send again, or send fewer at a time.",
        )
    if any(words in message for words in _MENDING):
        return NotReady(
            f"The model at {url} is being loaded again: {said}.", hint="Send again in a moment.", sent=False
        )
    if code in ("DEADLINE_EXCEEDED", "499", "504"):
        return timed_out(url, timeout_s)
    # gRPC cancels what reaches a server while it closes; this client cancels nothing itself.
    if code in ("UNAVAILABLE", "503", "CANCELLED"):
        sent = not any(words in message.lower() for words in _UNSENT)
        return not_ready(url, protocol, message, sent=sent)
    return RequestFailed(f"{url} refused the request: {said}.", status=code, reason=f"{said}.")


def timed_out(url: str, timeout_s: float) -> TimedOut:
    return TimedOut(f"{url} gave no answer within {timeout_s:g} s.", hint="Give more time, or send fewer texts.")


def not_ready(url: str, protocol: str, reason: str, *, sent: bool) -> NotReady:
    """`sent`: whether the server may have read something of the request."""
    return NotReady(
        f"No Triton answers {protocol} at {url}: {reason.rstrip('.') or 'the connection ended'}.",
        hint="`trimaran serve` starts one; check --url and --protocol.",
        sent=sent,
    )


def pause_before_retry(error: ServerError, attempt: int, *, retries: int) -> float | None:
    """Seconds to wait before sending again, or None: only what was surely never sent is sent again."""
    if attempt >= retries or not isinstance(error, NotReady) or error.sent is not False:
        return None
    return float(min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2**attempt) * random.uniform(0.5, 1.5))  # noqa: S311  (jitter, not a secret)
