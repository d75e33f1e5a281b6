"""A live server, and the child process that puts load on it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec

from trimaran.benchmarks.scenarios.loadgen import Load
from trimaran.benchmarks.scenarios.results import ServerTime, Wire
from trimaran.core.errors import UsageError
from trimaran.core.isolation import Worker
from trimaran.core.scratch import ScratchFolder
from trimaran.pipeline.suite.callers import ServerCallers
from trimaran.runtime.text import Text

# Beyond what a call should take: the child may still be busy, so it is not killed at once.
_ROOM_S = 120.0
_STATISTICS_S = 5.0
Parameters = ParamSpec("Parameters")


@dataclass(frozen=True)
class ServedTarget:
    """A live server that callers ask for one model."""

    kind: Literal["triton", "gateway"]
    model: str
    task: str
    # Its address for each wire.
    urls: Mapping[Wire, str]
    # Triton's HTTP address, where its counters are read, if it is known.
    statistics: str | None = None
    # The caller's key at a gateway.
    key: str = field(default="", repr=False)


def triton_target(urls: Sequence[str]) -> ServedTarget:
    """A running Triton by its addresses. The suite fills in the model and its task."""
    by_wire: dict[Wire, str] = {}
    for url in urls:
        scheme, _, address = url.rpartition("://")
        if scheme not in ("grpc", "http") or not address:
            raise UsageError(f"A Triton's address is grpc://host:port or http://host:port, found {url!r}.")
        by_wire["grpc" if scheme == "grpc" else "http"] = address
    return ServedTarget(kind="triton", model="", task="", urls=by_wire, statistics=by_wire.get("http"))


def gateway_target(url: str, triton_urls: Sequence[str], *, key: str) -> ServedTarget:
    if triton_urls:
        raise UsageError("Give either --url or --gateway, not both.")
    return ServedTarget(kind="gateway", model="", task="", urls={"http": url}, key=key)


class LoadDriver:
    """The child that makes the load; every call returns what was answered, whatever became of the server."""

    def __init__(self, target: ServedTarget, wire: Wire, texts: Sequence[Text]) -> None:
        self._folder = ScratchFolder("load")
        path = Path(self._folder.name) / "texts.json"
        path.write_text(json.dumps(list(texts)), encoding="utf-8")
        self._worker = Worker()
        try:
            self._callers = self._worker.hold(
                ServerCallers,
                _ROOM_S,
                kind=target.kind,
                url=target.urls[wire],
                wire=wire,
                model=target.model,
                task=target.task,
                texts_path=str(path),
                key=target.key,
            )
        except BaseException:  # nobody else knows the child yet, so none is left behind
            self.close()
            raise

    def load(
        self,
        method: Callable[Concatenate[ServerCallers, Parameters], dict[str, Any]],
        within_s: float,
        /,
        *arguments: Parameters.args,
        **keywords: Parameters.kwargs,
    ) -> Load:
        """`within_s` is what the load should take; far beyond it the child counts as hung."""
        answer = self._callers.call(method, within_s + _ROOM_S, *arguments, **keywords)
        return Load.model_validate(answer)

    def close(self) -> None:
        self._worker.close()
        self._folder.cleanup()


def statistics(target: ServedTarget) -> ServerTime | None:
    """What Triton has counted for the model so far, over all its versions; None if it cannot be read."""
    if target.statistics is None:
        return None
    url = f"http://{target.statistics}/v2/models/{target.model}/stats"
    try:
        with urllib.request.urlopen(url, timeout=_STATISTICS_S) as answer:
            rows = json.load(answer)["model_stats"]
    except (urllib.error.URLError, OSError, ValueError, KeyError):
        return None

    def total(name: str) -> int:
        return sum(int(row["inference_stats"][name].get("ns", 0)) for row in rows)

    return ServerTime(
        requests=sum(int(row["inference_stats"]["success"].get("count", 0)) for row in rows),
        queue_ns=total("queue"),
        compute_input_ns=total("compute_input"),
        compute_infer_ns=total("compute_infer"),
        compute_output_ns=total("compute_output"),
        executions=sum(int(row.get("execution_count", 0)) for row in rows),
    )
