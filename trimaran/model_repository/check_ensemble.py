"""Whether the steps of an ensemble fit together: every tensor made once, every input fed, every model there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from trimaran.core.model_config import ModelConfig, Step
from trimaran.model_repository.problem import Problem

_REMEDY = "Lay the artifact out again, or correct the steps of the ensemble."


def of_ensemble(place: Path, config: ModelConfig, models: Mapping[str, ModelConfig]) -> Iterator[Problem]:
    """`models` are the readable configurations of the repository by name, `place` the ensemble's own."""
    writers = {tensor.name: "the caller" for tensor in config.inputs}
    for step in config.steps:
        for tensor in step.outputs.values():
            if tensor in writers:
                yield _problem(
                    "two-writers",
                    place,
                    f"wanted one writer of {tensor!r}, found {writers[tensor]} and the step {step.model}.",
                )
            writers[tensor] = f"the step {step.model}"
    for step in config.steps:
        yield from _of_step(place, step, models.get(step.model), writers)
    for output in config.outputs:
        if output.name not in writers:
            yield _problem("step-unmapped", place, f"no step makes the output {output.name!r}.")


def _of_step(place: Path, step: Step, model: ModelConfig | None, writers: Mapping[str, str]) -> Iterator[Problem]:
    if model is None:
        yield _problem("step-unknown", place, f"the step {step.model!r} is no model of this repository.")
        return
    if step.version > 0 and not (place.parent.parent / step.model / str(step.version)).is_dir():
        yield _problem("step-unknown", place, f"the step {step.model!r} has no version {step.version}.")
    inputs, outputs = {tensor.name: tensor for tensor in model.inputs}, {tensor.name for tensor in model.outputs}
    for own, tensor in step.inputs.items():
        if own not in inputs:
            yield _problem("step-unmapped", place, f"the step {step.model} maps {own!r}, which is no input of it.")
        if tensor not in writers:
            yield _problem("step-unmapped", place, f"the step {step.model} reads {tensor!r}, which nothing makes.")
    for own in step.outputs:
        if own not in outputs:
            yield _problem("step-unmapped", place, f"the step {step.model} maps {own!r}, which is no output of it.")
    for name, needed in inputs.items():
        if not needed.optional and name not in step.inputs:
            yield _problem("step-unmapped", place, f"the step {step.model} is given nothing for its input {name!r}.")


def _problem(code: str, place: Path, message: str) -> Problem:
    return Problem(code=code, place=place, message=message, remedy=_REMEDY)
