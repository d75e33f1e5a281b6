"""Attention masks for models whose own masks torch's exporters cannot trace.

transformers builds the mask of a bidirectional Gemma 3 (EmbeddingGemma) with vmap, on which tracing fails. The model
also takes finished masks, one for each kind of layer; they are made here from plain comparisons.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import torch

# Kind of layer -> its mask.
Masks: TypeAlias = "dict[str, torch.Tensor]"


def traceable_masks(config: Any) -> Callable[[torch.Tensor], Masks] | None:
    """The function that makes the masks from attention_mask, or None if transformers' own can be traced."""
    makers: Mapping[str, Callable[[torch.Tensor], Masks] | None] = {
        "gemma3_text": (lambda mask: _bidirectional(mask, int(config.sliding_window)))
        if getattr(config, "use_bidirectional_attention", False)
        else None
    }
    return makers.get(config.model_type)


def _bidirectional(mask: torch.Tensor, window: int) -> Masks:
    """Every real token is seen: by all tokens, and in the sliding layers by those less than `window` positions away.

    The masks have their full shape [batch, 1, sequence, sequence]: attention with a broadcast mask is not fused by
    TensorRT, and cannot be packed.
    """
    import torch

    rows, length = mask.shape
    positions = torch.arange(length)
    near = (positions[:, None] - positions[None, :]).abs() < window
    real = (mask > 0)[:, None, None, :].expand(rows, 1, length, length)
    return {"full_attention": _added(real), "sliding_attention": _added(real & near)}


def _added(seen: torch.Tensor) -> torch.Tensor:
    """What is added to the attention scores: 0 where a token is seen, the lowest number elsewhere."""
    import torch

    hidden = torch.full((), torch.finfo(torch.float32).min)
    return torch.where(seen, torch.zeros(()), hidden)
