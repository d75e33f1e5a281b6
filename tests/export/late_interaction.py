"""Tiny late-interaction models: folders of sentence-transformers' MultiVectorEncoder and of PyLate."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.export import zoo

FIXED = {"strategy": "fixed", "length": 24}
SKIPPED = (".", ",", "!", "the")


def saved_late(
    folder: Path,
    *,
    family: str = "bert",
    expansion: dict[str, Any] | None = FIXED,
    normalize: bool = True,
    skipped: Sequence[str] = SKIPPED,
    skiplist_tasks: list[str] | None = None,
    prompts: dict[str, str] | None = None,
    similarity: str | None = None,
    **lengths: int,
) -> Path:
    """A folder as `MultiVectorEncoder.save` writes it."""
    import torch
    from sentence_transformers import MultiVectorEncoder
    from sentence_transformers.base.modules import Normalize, Transformer
    from sentence_transformers.base.modules.dense import Dense
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

    # Every place of a query must see a token of it in the local layers of ModernBERT; its own window is 128.
    changes = {"local_attention": 64} if family == "modernbert" else {}
    plain = zoo.saved_model(folder.parent / f"{folder.name}-plain", family, "embedding", **changes)
    torch.manual_seed(0)
    over: dict[str, Any] = {"module_input_name": "token_embeddings"}
    model = MultiVectorEncoder(
        modules=[
            Transformer(str(plain), max_seq_length=64, query_expansion=expansion, **lengths),
            Dense(32, 12, bias=False, activation_function=torch.nn.Identity(), **over),
            MultiVectorMask(list(skipped), skiplist_tasks=skiplist_tasks),
            *([Normalize(**over)] if normalize else []),
        ],
        prompts={"query": "[Q] ", "document": "[D] "} if prompts is None else prompts,
        similarity_fn_name=similarity,
        device="cpu",
    )
    model.save(str(folder))
    return folder


def saved_pylate(folder: Path, **settings: Any) -> Path:
    """A folder as PyLate 3 writes it: markers apart from prompts, and only the encoder and its projection listed."""
    saved_late(folder, prompts={})
    rows = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Dense", "type": "pylate.models.Dense.Dense"},
    ]
    (folder / "modules.json").write_text(json.dumps(rows))
    dense = {
        "in_features": 32,
        "out_features": 12,
        "bias": False,
        "activation_function": "torch.nn.modules.linear.Identity",
    }
    (folder / "1_Dense" / "config.json").write_text(json.dumps(dense))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 64, "do_lower_case": False}))
    stated = {
        "model_type": "ColBERT",
        "prompts": {},
        "default_prompt_name": None,
        "similarity_fn_name": "MaxSim",
        "query_prefix": "[unused0] ",
        "document_prefix": "[D] ",
        "query_length": 20,
        "document_length": 44,
        "attend_to_expansion_tokens": False,
        **settings,
    }
    (folder / "config_sentence_transformers.json").write_text(json.dumps(stated))
    return folder


def library(folder: Path) -> Any:
    from sentence_transformers import MultiVectorEncoder

    return MultiVectorEncoder(str(folder), device="cpu", local_files_only=True)
