"""The modules that complete an encoder: ids in, final numbers out, so that the graph needs no code around it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias, cast

import torch

from trimaran.core.errors import UsageError
from trimaran.core.families import family
from trimaran.core.spec import ModelRef, MultiVector, Pooling
from trimaran.core.tasks import task
from trimaran.core.tasks.hybrid_embedding import COLBERT_FILE, SPARSE_FILE
from trimaran.core.tasks.task import Head
from trimaran.export.hybrid import load_head
from trimaran.export.load import load_model
from trimaran.export.masks import Masks, traceable_masks
from trimaran.export.pooling import Pooled, TokenStages, pool

__all__ = ["Complete", "complete_module", "pool"]

# One tensor, or one for each output of the task.
ModelOutputs: TypeAlias = Any


class Complete(torch.nn.Module):
    """A model and what is left to do with its output, called with the family's inputs, positionally."""

    def __init__(self, model: torch.nn.Module, ref: ModelRef) -> None:
        super().__init__()
        self.model = model
        # Makes the model's attention masks while it is traced; None leaves that to transformers.
        self.masks: Callable[[torch.Tensor], Masks] | None = None
        self._inputs = ref.inputs or family(ref.family).inputs

    def forward(self, *arrays: torch.Tensor) -> ModelOutputs:
        return self.finished(dict(zip(self._inputs, arrays, strict=True)))

    def finished(self, inputs: dict[str, torch.Tensor]) -> ModelOutputs:
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
        # Of these layers the mean is pooled, counted from the embeddings on.
        self.layers = (ref.pooling or Pooling()).layers

    def finished(self, inputs: dict[str, torch.Tensor]) -> ModelOutputs:
        if self.layers == (-1,):
            states = self.outputs(inputs).last_hidden_state
        else:
            layers = self.outputs(inputs, output_hidden_states=True).hidden_states
            states = torch.stack([layers[layer] for layer in self.layers]).mean(dim=0)
        vectors: torch.Tensor = self.pooled(states, inputs["attention_mask"])
        return vectors


class WithHead(Complete):
    """The trained model's own head, finished as its task's row says."""

    def __init__(self, model: torch.nn.Module, ref: ModelRef, head: Head) -> None:
        super().__init__(model, ref)
        self._ref, self._head, self._keywords = ref, head, dict(head.keywords(ref))

    def finished(self, inputs: dict[str, torch.Tensor]) -> ModelOutputs:
        output = self.outputs(self._head.prepare(inputs), **self._keywords)
        return self._head.finish(output, inputs, self._ref)


class TokenVectorModule(Complete):
    """The token vectors of a late-interaction model, those of a query's expansion among them.

    The graph gets a mask of all tokens of a text. Where the others must not attend to the expansion, it is told from
    the ids: it is the run of expansion tokens behind the last other token, which ends every text.
    """

    def __init__(self, model: torch.nn.Module, ref: ModelRef, late: MultiVector) -> None:
        super().__init__(model, ref)
        self.stages = TokenStages(Path(ref.root), late.modules)
        self._hidden_id = late.hidden_id

    def finished(self, inputs: dict[str, torch.Tensor]) -> ModelOutputs:
        if self._hidden_id is not None:
            inputs = {**inputs, "attention_mask": self._attended(inputs["input_ids"], inputs["attention_mask"])}
        vectors: torch.Tensor = self.stages(self.outputs(inputs).last_hidden_state)
        return vectors

    def _attended(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        positions = mask.cumsum(dim=1)
        last = (positions * mask * (ids != self._hidden_id).to(mask.dtype)).amax(dim=1, keepdim=True)
        return mask * (positions <= last).to(mask.dtype)


class HybridVectorModule(Complete):
    """The vector of a text, the weight of each token and a vector for each token, from the same token states."""

    def __init__(self, model: torch.nn.Module, ref: ModelRef) -> None:
        super().__init__(model, ref)
        self.pooled = Pooled(ref)
        self.sparse, self.colbert = (load_head(Path(ref.root) / name) for name in (SPARSE_FILE, COLBERT_FILE))

    def finished(self, inputs: dict[str, torch.Tensor]) -> ModelOutputs:
        states, mask = self.outputs(inputs).last_hidden_state, inputs["attention_mask"]
        vectors = torch.nn.functional.normalize(self.colbert(states), p=2.0, dim=-1)
        return self.pooled(states, mask), self.sparse(states).relu().squeeze(-1), vectors


class ScoredByWords(Complete):
    """The score of a pair is the logit of one word, less that of another, behind the last token.

    `folded` multiplies with the difference of both words' weights: the other words are not computed.
    """

    def __init__(self, model: torch.nn.Module, ref: ModelRef, *, folded: bool) -> None:
        super().__init__(cast(torch.nn.Module, model.base_model), ref)
        words = cast(torch.nn.Module, model.get_output_embeddings())
        _require_plain_logits(model, self.model, words, ref)
        self._ids, self._sigmoid = ref.score_ids, ref.activation == "sigmoid"
        self.words = _difference(words, ref) if folded else words

    def finished(self, inputs: dict[str, torch.Tensor]) -> ModelOutputs:
        states = self.outputs(inputs).last_hidden_state
        logits = self.words(pool(states, inputs["attention_mask"], "last-token"))
        if logits.shape[-1] > 1:
            score = logits[:, self._ids[0]] - (logits[:, self._ids[1]] if len(self._ids) > 1 else 0.0)
            logits = score.unsqueeze(-1)
        return logits.sigmoid() if self._sigmoid else logits


def _difference(words: torch.nn.Module, ref: ModelRef) -> torch.nn.Module:
    """A linear layer with one output."""

    def folded(table: torch.Tensor) -> torch.Tensor:
        first, *others = (table[index : index + 1] for index in ref.score_ids)
        return torch.nn.Parameter((first - others[0] if others else first).detach().clone())

    bias = getattr(words, "bias", None)
    layer = torch.nn.Linear(ref.hidden, 1, bias=bias is not None)
    layer.weight = folded(words.weight)
    if bias is not None:
        layer.bias = folded(bias)
    return layer


def _require_plain_logits(model: torch.nn.Module, body: torch.nn.Module, words: torch.nn.Module, ref: ModelRef) -> None:
    """Some families scale or bound their logits; then a difference of weights is not the difference of logits."""
    tokens = torch.arange(1, 5).unsqueeze(0) % ref.vocabulary
    with torch.inference_mode():
        logits = model(input_ids=tokens).logits
        plain = words(body(input_ids=tokens).last_hidden_state)
    # A bound changes small logits by less than rounding: the config must not state one.
    bound = getattr(model.config, "final_logit_softcapping", None)
    if bound or not torch.allclose(logits, plain, rtol=1e-4, atol=1e-4):
        raise UsageError(f"{ref.source} scales its logits, so its scores cannot be told from two words alone.")


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
    complete: Complete
    if ref.multi_vector:
        complete = TokenVectorModule(model, ref, ref.multi_vector)
    elif ref.token_width:
        complete = HybridVectorModule(model, ref)
    elif ref.score_ids:
        complete = ScoredByWords(model, ref, folded=traced)
    else:
        complete = WithHead(model, ref, head) if head else PooledVectors(model, ref)
    complete.masks = traceable_masks(model.config) if traced else None
    return complete.eval()
