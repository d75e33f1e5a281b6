"""CTranslate2's encoder in INT8, which leaves padding out, with the tokenizer and the pooling of the model's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def prepare(model: Path, work: Path, *, texts: list[str], compute: str) -> None:
    """Convert once; weights are kept in the type that is computed in."""
    from ctranslate2.converters import TransformersConverter

    TransformersConverter(str(model)).convert(str(work / "converted"), quantization=compute, force=True)


class Peer:
    def __init__(self, model: Path, work: Path, *, threads: int, compute: str) -> None:
        import ctranslate2
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(256)
        self._encoder = ctranslate2.Encoder(
            str(work / "converted"), device="cpu", intra_threads=threads, inter_threads=1, compute_type=compute
        )

    def encode(self, texts: list[str]) -> Any:
        """In order of length and 32 at a time, as sentence-transformers does it."""
        import numpy as np

        rows = [encoding.ids for encoding in self._tokenizer.encode_batch(texts)]
        order = sorted(range(len(rows)), key=lambda index: -len(rows[index]))
        vectors: list[Any] = [None] * len(rows)
        for begin in range(0, len(order), 32):
            batch = order[begin : begin + 32]
            states = np.asarray(self._encoder.forward_batch([rows[index] for index in batch]).last_hidden_state)
            for index, state in zip(batch, states, strict=True):
                mean = state[: len(rows[index])].mean(axis=0)
                vectors[index] = mean / np.linalg.norm(mean)
        return np.stack(vectors)
