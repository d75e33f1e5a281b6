"""Hands a share of the live answers to the shadow process, and adds what it says of them to Triton's metrics.

The shadow process answers the same requests with the fp32 graph. A thread of this module talks to it over a Unix
socket, so an answer to a caller never waits. Samples that find no room are dropped and counted. Nothing is stored.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import queue
import random
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

# The folder of the sockets, and the share of rows that is sampled. Without the folder nothing is.
FOLDER = "TRIMARAN_SHADOW"
SHARE = "TRIMARAN_SHADOW_SHARE"
# The socket of the shadow process in that folder; stubs have one of their own, named by their process number.
SOCKET = "shadow"
# The id of a request that is no caller's.
CANARY = "trimaran-canary"
MESSAGE_BYTES = 1 << 20
_WAITING = 64
_POLL_S = 0.25


class Sampler:
    """Without the environment variables it does nothing."""

    def __init__(self, triton: Any, tensors: Callable[[Sequence[Any]], Mapping[str, Any]], args: Mapping[str, str]):
        self._triton, self._tensors = triton, tensors
        self._labels = {"model": args.get("model_name", ""), "version": args.get("model_version", "")}
        self._waiting: queue.Queue[tuple[Mapping[str, Any], Any]] = queue.Queue(_WAITING)
        self._dropped, self._ended = 0, False
        self._families: dict[str, Any] = {}
        self._metrics: dict[str, Any] = {}
        folder = os.environ.get(FOLDER, "")
        self.active = bool(folder) and hasattr(triton, "MetricFamily")
        if self.active:
            self._share = float(os.environ.get(SHARE, "0"))
            self._address = str(Path(folder) / SOCKET)
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MESSAGE_BYTES)
            with contextlib.suppress(OSError):  # without an address of its own it gets no metrics back
                self._socket.bind(str(Path(folder) / str(os.getpid())))
            self._thread = threading.Thread(target=self._work, daemon=True)
            self._thread.start()

    def offer(self, rows: Sequence[Mapping[str, Any] | None], answers: Sequence[Any]) -> None:
        """Takes some of the rows, each with its answer. A row that is None is no caller's."""
        if not self.active:
            return
        for row, answer in zip(rows, answers, strict=True):
            if row is not None and random.random() < self._share:  # noqa: S311  (a sample, no secret)
                try:
                    self._waiting.put_nowait((row, answer))
                except queue.Full:
                    self._dropped += 1

    def close(self) -> None:
        if self.active:
            self._ended = True
            self._thread.join(timeout=2 * _POLL_S)
            self._socket.close()

    def _work(self) -> None:
        while not self._ended:
            with contextlib.suppress(queue.Empty):
                self._send(*self._waiting.get(timeout=_POLL_S))
            # Whatever a reply holds: the stage goes on.
            with contextlib.suppress(Exception):
                self._apply_replies()

    def _send(self, row: Mapping[str, Any], answer: Any) -> None:
        try:
            tensors = {name: _encoded(array) for name, array in self._tensors([answer]).items()}
            message = json.dumps({**self._labels, "row": row, "answer": tensors}).encode()
            self._socket.sendto(message, self._address)
        except Exception:  # no shadow, no room in its queue, or an answer that is too large
            self._dropped += 1

    def _apply_replies(self) -> None:
        dropped, self._dropped = self._dropped, 0
        if dropped:
            text = "Sampled answers that the shadow process had no room for."
            self._apply("COUNTER", "trimaran_shadow_dropped", text, {}, dropped)
        with contextlib.suppress(BlockingIOError):
            while True:
                for change in json.loads(self._socket.recv(MESSAGE_BYTES)):
                    self._apply(*change)

    def _apply(self, kind: str, name: str, description: str, labels: Mapping[str, str], value: float) -> None:
        """Both families and metrics are kept: what is not referred to is taken out of Triton's metrics."""
        if name not in self._families:
            kinds = self._triton.MetricFamily
            self._families[name] = kinds(name=name, description=description, kind=getattr(kinds, kind))
        key = f"{name} {labels}"
        if key not in self._metrics:
            self._metrics[key] = self._families[name].Metric(labels={**self._labels, **labels})
        metric = self._metrics[key]
        (metric.increment if kind == "COUNTER" else metric.set)(value)


def _encoded(array: Any) -> list[Any]:
    """[type, shape, data]: strings as they are, numbers as base64 of their bytes."""
    if array.dtype == np.object_:
        return ["BYTES", list(array.shape), [bytes(value).decode("utf-8") for value in array.ravel()]]
    return [array.dtype.str, list(array.shape), base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()]


def decoded(encoded: Sequence[Any]) -> Any:
    """The array that `_encoded` wrote."""
    kind, shape, data = encoded
    if kind == "BYTES":
        return np.array([value.encode("utf-8") for value in data], dtype=np.object_).reshape(shape)
    return np.frombuffer(base64.b64decode(data), np.dtype(kind)).reshape(shape)
