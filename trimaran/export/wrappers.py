"""The modules that complete an encoder: ids in, final numbers out, so that the graph needs no code around it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch

from trimaran.core.families import family
from trimaran.core.spec import ModelRef, Pooling
from trimaran.core.tasks import task
from trimaran.core.tasks.task import Head
from trimaran.export.load import load_model
from trimaran.export.masks import Masks, traceable_masks
from trimaran.export.pooling import Pooled, pool

__all__ = ["Complete", "complete_module", "pool"]

# One tensor, or one for each output of the task.
Tensors: TypeAlias = Any


class Complete(torch.nn.Module):
    """A model and what is left to do with its output, called with the family's inputs, positionally."""

    def __init__(self, model: torch.nn.Module, ref: ModelRef) -> None:
        super().__init__()
        self.model = model
        # Makes the model's attention masks while it is traced; None leaves that to transformers.
        self.masks: Callable[[torch.Tensor], Masks] | None = None
        self._inputs = ref.inputs or family(ref.family).inputs

    def forward(self, *arrays: torch.Tensor) -> Tensors:
        return self.finished(dict(zip(self._inputs, arrays, strict=True)))

    def finished(self, inputs: dict[str, torch.Tensor]) -> Tensors:
        raise NotImplementedError

    def outputs(self, inputs: Mapping[str, torch.Tensor], **keywords: Any) -> Any:
        """What the model makes of its inputs."""
        masks = {"attention_mask": self.masks(inputs["attention_mask"])} if self.masks else {}
        return self.model(**{**inputs, **masks}, **keywords)


class PooledVectors(Complete):
    """Token vectors become one vector a text."""

    def __init__(self, model: torch.nn.Module, ref: ModelRef) -> None:
        super().__init__(model, ref)
        self.pooled = Pooled(ref)
        self._layers = (ref.pooling or Pooling()).layers

    def finished(self, inputs: dict[str, torch.Tensor]) -> Tensors:
        if self._layers == (-1,):
            states = self.outputs(inputs).last_hidden_state
        else:
            layers = self.outputs(inputs, output_hidden_states=True).hidden_states
            states = torch.stack([layers[layer] for layer in self._layers]).mean(dim=0)
        vectors: torch.Tensor = self.pooled(states, inputs["attention_mask"])
        return vectors


class WithHead(Complete):
    """The trained model's own head, finished as its task's row says."""

    def __init__(self, model: torch.nn.Module, ref: ModelRef, head: Head) -> None:
        super().__init__(model, ref)
        self._ref, self._head, self._keywords = ref, head, dict(head.keywords(ref))

    def finished(self, inputs: dict[str, torch.Tensor]) -> Tensors:
        output = self.outputs(self._head.prepare(inputs), **self._keywords)
        return self._head.finish(output, inputs["attention_mask"], self._ref)


def complete_module(ref: ModelRef, *, attention: str, traced: bool = False) -> torch.nn.Module:
    """The whole computation of the model's task as one module with the model's inputs, positionally.

    `traced`: a module for torch's exporters. The reference computes with nothing but transformers' own code.
    """
    if ref.module:
        from trimaran.export.module import complete_user_module

        return complete_user_module(ref)
    if "attentions" in ref.extras:
        attention = "eager"  # fused attention never forms the matrix that is asked for
    model, head = load_model(ref, attention=attention), task(ref.task).head
    complete = WithHead(model, ref, head) if head else PooledVectors(model, ref)
    complete.masks = traceable_masks(model.config) if traced else None
    return complete.eval()
