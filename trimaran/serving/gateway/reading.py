"""Read a request: its body, whole and within its limits, and the moment at which the caller hangs up."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Mapping
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel
from pydantic import ValidationError as SchemaError
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive

from trimaran.core.choices import MOST_TEXTS
from trimaran.serving.gateway.refusals import Refusal, invalid, timed_out, too_large

Result = TypeVar("Result")

# The part of a refused body that is read and thrown away, so that its sender gets to see the refusal.
_LINGER_BYTES = 256 << 20
_LINGER_S = 5.0
_MOST_ERRORS = 100
# The largest bodies are token ids.
MOST_VALUES = 1 << 19


def body_size(headers: Mapping[bytes, bytes], *, limit: int) -> int:
    """The announced bytes of a JSON body. Raises Refusal (411, 413, 415)."""
    _require_plain_json(headers)
    length = headers.get(b"content-length", b"")
    # A body of unknown length can be a million chunks of one byte. Callers that send JSON know its length.
    if b"transfer-encoding" in headers or not length.isdigit():
        raise Refusal(411, "length_required", "The body needs a Content-Length, and no Transfer-Encoding.")
    if len(length) > 18 or int(length) > limit:
        raise too_large("The bytes of the body", int(length[:18]), limit)
    return int(length)


async def body_of(request: Request, *, within_s: float) -> bytes:
    """Raises Refusal (408) or ClientDisconnect."""
    try:
        async with asyncio.timeout(within_s):
            return await request.body()
    except TimeoutError as error:
        raise Refusal(408, "too_slow", f"The body did not arrive within {within_s:g} s.") from error


def parsed(schema: type[BaseModel], body: bytes, *, most_values: int = MOST_VALUES) -> BaseModel:
    """Raises Refusal: 400 if the body is not JSON, 413 for more values than `most_values` or a list without end, 422 if
    it breaks the schema.

    Never repeats what was sent.
    """
    # A value of the wrong type becomes Python objects before it is refused, which takes longer than to read it.
    if len(body) > most_values and (values := _value_count(body, most_values)) > most_values:
        raise too_large("The values in the body", values, most_values)
    try:
        return schema.model_validate_json(body)
    except SchemaError as error:
        # To list them takes more time than to find them. Only unknown fields can be so many.
        if error.error_count() > _MOST_ERRORS:
            raise invalid("The body has many unknown fields.") from error
        errors = error.errors(include_url=False, include_input=False)
    first = errors[0]
    for found in errors:
        if found["type"] == "too_long" and found["ctx"]["max_length"] == MOST_TEXTS:
            raise too_large("The items of a list", found["ctx"]["actual_length"], MOST_TEXTS)
    if first["type"] == "json_invalid":
        raise Refusal(400, "invalid_json", "The body is not JSON in UTF-8.")
    if first["type"] == "extra_forbidden":
        raise invalid("The body has an unknown field.")
    known = [str(part) for part in first["loc"] if isinstance(part, int) or part in schema.model_fields]
    field = ".".join(known[:3])
    raise invalid(f"{field or 'The body'}: {first['msg']}.", param=field or None)


def _value_count(body: bytes, limit: int) -> int:
    """An upper bound of the values: commas and opening brackets. Those in strings are left out if that matters."""
    marks = _marks(np.frombuffer(body, np.uint8))
    if marks <= limit:
        return marks
    plain = np.frombuffer(body.replace(rb"\\", b"  ").replace(rb"\"", b"  "), np.uint8)
    # Inside of a string, an odd number of quotes stands before.
    return _marks(plain[np.cumsum(plain == ord('"'), dtype=np.uint8) % 2 == 0])


def _marks(body: npt.NDArray[np.uint8]) -> int:
    return sum(int(np.count_nonzero(body == ord(mark))) for mark in ",[{")


async def while_connected(request: Request, work: Awaitable[Result], *, within_s: float) -> Result:
    """The result of the work. A caller that hangs up cancels it, and Triton drops the request from its queue.

    Raises Refusal (504) or ClientDisconnect.
    """
    leaving = asyncio.create_task(_disconnected(request))
    try:
        async with asyncio.timeout(within_s) as timeout:

            def hang_up(task: asyncio.Task[None]) -> None:
                # The time for the answer ends now, unless it has ended in this very moment.
                if not task.cancelled():
                    with contextlib.suppress(RuntimeError):
                        timeout.reschedule(0)

            leaving.add_done_callback(hang_up)
            return await work
    except TimeoutError as error:
        raise (ClientDisconnect() if leaving.done() else timed_out()) from error
    finally:
        leaving.cancel()


async def linger(receive: Receive) -> None:
    """Read and drop the rest of a body. Closing with unread data resets the connection before the answer is seen."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LINGER_S):
            size = 0
            while size < _LINGER_BYTES:
                message = await receive()
                size += len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    return


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _require_plain_json(headers: Mapping[bytes, bytes]) -> None:
    kind, _, options = headers.get(b"content-type", b"").lower().partition(b";")
    charset = options.replace(b" ", b"").replace(b'"', b"")
    if kind.strip() != b"application/json" or charset not in (b"", b"charset=utf-8"):
        raise Refusal(415, "not_json", "The body needs Content-Type: application/json, in UTF-8.")
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise Refusal(415, "compressed", "A compressed body is not accepted.")
