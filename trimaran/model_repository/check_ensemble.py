"""Whether the steps of an ensemble fit together: every tensor made once, every input fed, every model present."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from trimaran.core.model_config import EnsembleStep, ModelConfig
from trimaran.model_repository.problem import Problem, problem


def ensemble_problems(path: Path, config: ModelConfig, configs: Mapping[str, ModelConfig]) -> Iterator[Problem]:
    """`path` is the ensemble's configuration, `configs` the readable ones of the repository by model."""
    writers = {tensor.name: "the caller" for tensor in config.inputs}
    for step in config.steps:
        for tensor in step.outputs.values():
            if tensor in writers:
                message = f"wanted one writer of {tensor!r}, found {writers[tensor]} and the step {step.model}."
                yield problem("two-writers", path, message)
            writers[tensor] = f"the step {step.model}"
    for step in config.steps:
        model = configs.get(step.model)
        if model is None:
            yield problem("step-unknown", path, f"the step {step.model!r} is no model of this repository.")
            continue
        if step.version > 0 and not (path.parent.parent / step.model / str(step.version)).is_dir():
            yield problem("step-unknown", path, f"the step {step.model!r} has no version {step.version}.")
        for message in _unmapped(step, model, writers):
            yield problem("step-unmapped", path, message)
    for output in config.outputs:
        if output.name not in writers:
            yield problem("step-unmapped", path, f"no step makes the output {output.name!r}.")


def _unmapped(step: EnsembleStep, model: ModelConfig, writers: Mapping[str, str]) -> Iterator[str]:
    """What is wrong between the maps of a step and the tensors of its model."""
    inputs, outputs = {tensor.name: tensor for tensor in model.inputs}, {tensor.name for tensor in model.outputs}
    for own, tensor in step.inputs.items():
        if own not in inputs:
            yield f"the step {step.model} maps {own!r}, which is no input of it."
        if tensor not in writers:
            yield f"the step {step.model} reads {tensor!r}, which nothing makes."
    for own in step.outputs:
        if own not in outputs:
            yield f"the step {step.model} maps {own!r}, which is no output of it."
    for name, needed in inputs.items():
        if not needed.optional and name not in step.inputs:
            yield f"the step {step.model} is given nothing for its input {name!r}."
