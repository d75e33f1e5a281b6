"""The modules that complete an encoder: ids in, final numbers out, so that the graph needs no code around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch

from trimaran.core.families import family
from trimaran.core.spec import ModelRef, Pooling, Sparse
from trimaran.export.load import load_model
from trimaran.export.pooling import Pooled, pool

__all__ = ["Complete", "complete_module", "pool"]

# One tensor, or one for each output of the task.
Tensors: TypeAlias = Any


class Complete(torch.nn.Module):
    """A model and what is left to do with its output, called with the family's inputs, positionally."""

    def __init__(self, model: torch.nn.Module, ref: ModelRef) -> None:
        super().__init__()
        self.model = model
        self._inputs = ref.inputs or family(ref.family).inputs
        self._ask: dict[str, bool] = {}

    def forward(self, *arrays: torch.Tensor) -> Tensors:
        named = dict(zip(self._inputs, arrays, strict=True))
        return self.finish(self.model(**named, **self._ask), named["attention_mask"])

    def finish(self, output: Any, mask: torch.Tensor) -> Tensors:
        raise NotImplementedError


class Embedding(Complete):
    def __init__(self, model: torch.nn.Module, ref: ModelRef) -> None:
        super().__init__(model, ref)
        self.pooled = Pooled(ref)
        self._layers = (ref.pooling or Pooling()).layers
        if self._layers != (-1,):
            self._ask = {"output_hidden_states": True}

    def finish(self, output: Any, mask: torch.Tensor) -> Tensors:
        if self._layers == (-1,):
            states = output.last_hidden_state
        else:
            states = torch.stack([output.hidden_states[layer] for layer in self._layers]).mean(dim=0)
        vectors: torch.Tensor = self.pooled(states, mask)
        return vectors


class TokenVectors(Complete):
    def __init__(self, model: torch.nn.Module, ref: ModelRef) -> None:
        super().__init__(model, ref)
        self._extras = ref.extras
        self._ask = {f"output_{name}": True for name in ref.extras}

    def finish(self, output: Any, mask: torch.Tensor) -> Tensors:
        extras = [torch.stack(tuple(output[name]), dim=1) for name in self._extras]
        return (output.last_hidden_state, *extras) if extras else output.last_hidden_state


class Logits(Complete):
    """Scores of labels, of a whole text or of each token, activated where the labels are independent."""

    def __init__(self, model: torch.nn.Module, ref: ModelRef) -> None:
        super().__init__(model, ref)
        self._sigmoid = ref.activation == "sigmoid"

    def finish(self, output: Any, mask: torch.Tensor) -> Tensors:
        logits: torch.Tensor = output.logits
        return torch.sigmoid(logits) if self._sigmoid else logits


class Spans(Complete):
    def finish(self, output: Any, mask: torch.Tensor) -> Tensors:
        return output.start_logits, output.end_logits


class Fillings(Complete):
    """The most probable tokens at each position: all the logits would be a hundred megabytes a text."""

    def __init__(self, model: torch.nn.Module, ref: ModelRef) -> None:
        super().__init__(model, ref)
        self._top_k = ref.top_k

    def finish(self, output: Any, mask: torch.Tensor) -> Tensors:
        scores, ids = torch.topk(torch.softmax(output.logits, dim=-1), self._top_k, dim=-1)
        return scores, ids


class SparseWeights(Complete):
    def __init__(self, model: torch.nn.Module, ref: ModelRef) -> None:
        super().__init__(model, ref)
        self._sparse = ref.sparse or Sparse()

    def finish(self, output: Any, mask: torch.Tensor) -> Tensors:
        weights = torch.log1p(torch.relu(output.logits * mask.unsqueeze(-1)))
        if self._sparse.activation == "log1p_relu":
            weights = torch.log1p(weights)
        return weights.sum(dim=1) if self._sparse.strategy == "sum" else weights.amax(dim=1)


COMPLETIONS: dict[str, Callable[[torch.nn.Module, ModelRef], torch.nn.Module]] = {
    "embedding": Embedding,
    "feature-extraction": TokenVectors,
    "text-classification": Logits,
    "token-classification": Logits,
    "question-answering": Spans,
    "fill-mask": Fillings,
    "rerank": Logits,
    "sparse-embedding": SparseWeights,
    "zero-shot-classification": Logits,
}


def complete_module(ref: ModelRef, *, attention: str) -> torch.nn.Module:
    """The whole computation of the model's task as one module with the model's inputs, positionally."""
    if ref.module:
        from trimaran.export.module import complete_user_module

        return complete_user_module(ref)
    if "attentions" in ref.extras:
        attention = "eager"  # fused attention never forms the matrix that is asked for
    return COMPLETIONS[ref.task](load_model(ref, attention=attention), ref).eval()
