"""Builds the student of `trimaran shrink --to bilstm` from its folder, as a user's function builds a module."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any


def build(folder: Path) -> tuple[Any, Any, Any]:
    """The module, its tokenizer and example inputs."""
    import torch
    from tokenizers import Tokenizer

    from trimaran.core.bilstm import read_bilstm

    student = read_bilstm(folder)
    tokenizer = SimpleNamespace(
        backend_tokenizer=Tokenizer.from_file(str(folder / "tokenizer.json")),
        pad_token_id=student.config.pad_id,
        truncation_side=student.config.cut_side,
    )
    ids = torch.arange(1, 5).unsqueeze(0) % student.config.vocabulary
    return student, tokenizer, {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
