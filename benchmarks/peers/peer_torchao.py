"""torchao's dynamic INT8 with torch.compile, inside sentence-transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def prepare(model: Path, work: Path, *, texts: list[str]) -> None:
    """Nothing is kept: weights are quantised and kernels compiled when the peer starts."""


class Peer:
    def __init__(self, model: Path, work: Path, *, threads: int) -> None:
        import torch
        from sentence_transformers import SentenceTransformer
        from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

        torch.set_num_threads(threads)
        self._model = SentenceTransformer(str(model), device="cpu", local_files_only=True)
        encoder = self._model[0].auto_model
        quantize_(encoder, Int8DynamicActivationInt8WeightConfig())
        # `dynamic`: one kernel for every length, or each new length would be compiled while it is timed.
        encoder.forward = torch.compile(encoder.forward, dynamic=True)

    def encode(self, texts: list[str]) -> Any:
        return self._model.encode(texts, batch_size=32, show_progress_bar=False, convert_to_numpy=True)
