"""fastembed with the same weights: a custom model over the ONNX file that another peer exported."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

NAME = "peers/all-MiniLM-L6-v2"


def prepare(model: Path, work: Path, *, texts: list[str], exported: str) -> None:
    """`exported` is the folder of sentence-transformers' ONNX export: fastembed reads ONNX and makes none."""
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        shutil.copy(model / name, work / name)
    shutil.copy(work.parent / exported / "onnx" / "model.onnx", work / "model.onnx")


class Peer:
    def __init__(self, model: Path, work: Path, *, threads: int, exported: str) -> None:
        from fastembed import TextEmbedding
        from fastembed.common.model_description import ModelSource, PoolingType

        TextEmbedding.add_custom_model(
            model=NAME,
            pooling=PoolingType.MEAN,
            normalization=True,
            sources=ModelSource(hf=NAME),
            dim=384,
            model_file="model.onnx",
        )
        self._model = TextEmbedding(
            NAME, threads=threads, specific_model_path=str(work), providers=["CPUExecutionProvider"]
        )

    def encode(self, texts: list[str]) -> Any:
        import numpy as np

        return np.stack(list(self._model.embed(texts, batch_size=32)))
