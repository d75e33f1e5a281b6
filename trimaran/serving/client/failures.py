"""The one place where errors of the transports and of Triton become errors of Trimaran, and what is sent again."""

from __future__ import annotations

import random

from trimaran.core.errors import NotReady, Overloaded, RequestFailed, ServerError, TimedOut
from trimaran.serving.client.endpoint import Endpoint

# gRPC's messages when there was no connection, so that the server cannot have read anything.
_UNSENT = ("failed to connect to all addresses", "connection refused", "dns resolution failed", "name resolution")
# Triton's messages, with status 404 or 500, while a model is loaded again, or unloaded because the server drains.
# The request was never computed, and the model may be there a moment later.
_RELOADING = ("has no available versions", "is not healthy")
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0
# A model comes back within seconds: it is asked more often, with shorter pauses.
_WHILE_RELOADING = (4, 0.2)


def from_exception(endpoint: Endpoint, error: Exception) -> ServerError | None:
    """None for an error that does not come from the transport."""
    if isinstance(error, ServerError):
        return error
    if isinstance(error, TimeoutError):
        return timed_out(endpoint.address, endpoint.timeout_s)
    from aiohttp import ClientConnectorError, ClientError
    from tritonclient.utils import InferenceServerException

    if isinstance(error, InferenceServerException):
        status, message = str(error.status() or ""), str(error.message())
        return from_status(endpoint.address, endpoint.protocol, status, message, timeout_s=endpoint.timeout_s)
    if isinstance(error, (ClientError, ConnectionError)):
        sent = not isinstance(error, ClientConnectorError)
        return not_ready(endpoint.address, endpoint.protocol, str(error), sent=sent)
    return None


def from_status(url: str, protocol: str, status: str, message: str, *, timeout_s: float) -> ServerError:
    """`status` as tritonclient gives it: a gRPC code or an HTTP number."""
    code = status.removeprefix("StatusCode.")
    reason = message.rstrip(".")
    if "maximum queue size" in message or "timeout expired" in message.lower():
        return Overloaded(
            f"{url} has more requests than it can answer: {reason}.",
            hint="Wait and send again, or send fewer at a time.",
        )
    if any(words in message for words in _RELOADING):
        return NotReady(
            f"The model at {url} is being loaded again: {reason}.",
            hint="Send again in a moment.",
            sent=False,
            reloading=True,
        )
    if code in ("DEADLINE_EXCEEDED", "499", "504"):
        return timed_out(url, timeout_s)
    # gRPC cancels requests that reach a server while it closes. This client cancels nothing itself.
    if code in ("UNAVAILABLE", "503", "CANCELLED"):
        sent = not any(words in message.lower() for words in _UNSENT)
        return not_ready(url, protocol, message, sent=sent)
    return RequestFailed(f"{url} refused the request: {reason}.", status=code, reason=f"{reason}.")


def timed_out(url: str, timeout_s: float) -> TimedOut:
    return TimedOut(f"{url} gave no answer within {timeout_s:g} s.", hint="Give more time, or send fewer texts.")


def not_ready(url: str, protocol: str, reason: str, *, sent: bool) -> NotReady:
    """`sent`: whether the server may have read something of the request."""
    # gRPC says several times where it could not connect, and then why.
    reason = reason.rpartition("Failed to connect to remote host: ")[2].rstrip(".")
    return NotReady(
        f"No Triton answers {protocol} at {url}: {reason or 'the connection ended'}.",
        hint="`trimaran serve` starts one; check --url and --protocol.",
        sent=sent,
    )


def pause_before_retry(error: ServerError, attempt: int, *, retries: int) -> float | None:
    """Seconds to wait before sending again, or None. Only a request that was surely never sent is sent again."""
    if not isinstance(error, NotReady) or error.sent is not False:
        return None
    times, longest_s = _WHILE_RELOADING if error.reloading else (1, _LONGEST_PAUSE_S)
    if attempt >= times * retries:
        return None
    return float(min(longest_s, _FIRST_PAUSE_S * 2**attempt) * random.uniform(0.5, 1.5))  # noqa: S311  (jitter, not a secret)
