"""A request's body off the wire, whole and within its limits, or a refusal before anything of it is believed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from pydantic import BaseModel
from pydantic import ValidationError as SchemaError

from trimaran.serving.gateway.refusals import Refusal, invalid, too_large

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]

# How much of a refused body is read and thrown away, so that its sender gets to see the refusal.
_LINGER_BYTES = 256 << 20
_LINGER_S = 5.0


class Gone(Exception):
    """The caller hung up."""


async def body_of(receive: Receive, headers: Mapping[bytes, bytes], *, limit: int, within_s: float) -> bytes:
    """Raises Refusal (408, 411, 413, 415) or Gone."""
    _require_plain_json(headers)
    length = headers.get(b"content-length", b"")
    # A body of unknown length can be a million chunks of one byte. Callers that send JSON know its length.
    if b"transfer-encoding" in headers or not length.isdigit():
        raise Refusal(411, "length_required", "The body wants a Content-Length, and no Transfer-Encoding.")
    if len(length) > 18 or int(length) > limit:
        raise too_large("The bytes of the body", int(length[:18]), limit)
    parts: list[bytes] = []
    try:
        async with asyncio.timeout(within_s):
            more = True
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Gone
                parts.append(message.get("body", b""))
                more = message.get("more_body", False)
    except TimeoutError as error:
        raise Refusal(408, "too_slow", f"The body did not come within {within_s:g} s.") from error
    return b"".join(parts)


def parsed(model: type[BaseModel], body: bytes) -> BaseModel:
    """Raises Refusal (400 when it is not JSON, 422 when it is not what is wanted); never repeats what was sent."""
    try:
        return model.model_validate_json(body)
    except SchemaError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        first = found[0]
        if first["type"] == "json_invalid":
            raise Refusal(400, "invalid_json", "The body is not JSON in UTF-8.") from None
        known = [str(part) for part in first["loc"] if isinstance(part, int) or part in model.model_fields]
        place = ".".join(known[:3])
        if first["type"] == "extra_forbidden":
            raise invalid("The body has a field that is not known.") from None
        raise invalid(f"{place or 'The body'}: {first['msg']}.", param=place or None) from None


async def linger(receive: Receive) -> None:
    """Closing a connection with unread data resets it, and the sender would see that instead of the answer."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LINGER_S):
            size = 0
            while size < _LINGER_BYTES:
                message = await receive()
                size += len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    return


async def gone(receive: Receive) -> None:
    """Returns when the caller has hung up."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _require_plain_json(headers: Mapping[bytes, bytes]) -> None:
    kind, _, options = headers.get(b"content-type", b"").lower().partition(b";")
    charset = options.replace(b" ", b"").replace(b'"', b"")
    if kind.strip() != b"application/json" or charset not in (b"", b"charset=utf-8"):
        raise Refusal(415, "not_json", "The body wants Content-Type: application/json, in UTF-8.")
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise Refusal(415, "compressed", "A compressed body is not taken.")
