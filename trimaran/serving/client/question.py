"""A served model as its server describes it, and the plan of one call of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from trimaran.runtime.text import Array

NamedTensors = Mapping[str, Array]
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Model:
    """What the server says about a model."""

    name: str
    # Empty for a model that Trimaran did not lay out.
    task: str
    max_batch_size: int
    inputs: frozenset[str]
    # Output names with their dimensions, without the batch.
    outputs: Mapping[str, tuple[int, ...]]
    parameters: Mapping[str, str]

    @property
    def prompts(self) -> tuple[str, ...]:
        """The names of the prompts that a caller may choose from."""
        return tuple(json.loads(self.parameters.get("prompts") or "[]"))

    @classmethod
    def from_config(cls, name: str, config: Mapping[str, Any]) -> Model:
        parameters = {key: str(value.get("string_value", "")) for key, value in config.get("parameters", {}).items()}
        return cls(
            name=name,
            task=parameters.get("task", ""),
            max_batch_size=max(1, int(config.get("max_batch_size", 0))),
            # gRPC leaves out what is empty, such as the dimensions of one number a row.
            inputs=frozenset(str(item["name"]) for item in config.get("input", ())),
            outputs={item["name"]: tuple(map(int, item.get("dims", ()))) for item in config.get("output", ())},
            parameters=parameters,
        )


@dataclass(frozen=True)
class Ask(Generic[Answer]):
    """The plan of one call."""

    # The inputs of each request.
    requests: tuple[NamedTensors, ...]
    # The outputs that each request asks for.
    outputs: tuple[str, ...]
    # Makes one answer of the answers to all requests.
    join: Callable[[Sequence[NamedTensors]], Answer]
    # Whether texts that the server cut are lost to the caller.
    counts_cuts: bool = True
    # What is kept of the answer to one request until all answers are there.
    keep: Callable[[NamedTensors], NamedTensors] = lambda tensors: tensors
