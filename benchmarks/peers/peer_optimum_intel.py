"""optimum-intel's static INT8 with SmoothQuant in OpenVINO, with tokenizer and mean pooling as its users write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

MAXIMUM, BATCH = 256, 32


def prepare(model: Path, work: Path, *, texts: list[str]) -> None:
    from datasets import Dataset
    from optimum.intel import OVConfig, OVModelForFeatureExtraction, OVQuantizationConfig, OVQuantizer
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(model))
    loaded = OVModelForFeatureExtraction.from_pretrained(str(model), export=True, local_files_only=True)
    tokens = Dataset.from_dict(dict(tokenizer(texts, truncation=True, max_length=MAXIMUM)))
    quantizer = OVQuantizer.from_pretrained(loaded)
    config = OVConfig(quantization_config=OVQuantizationConfig(bits=8, num_samples=len(texts), smooth_quant_alpha=0.95))
    quantizer.quantize(calibration_dataset=tokens, save_directory=str(work), ov_config=config)
    tokenizer.save_pretrained(str(work))


class Peer:
    def __init__(self, model: Path, work: Path, *, threads: int) -> None:
        from optimum.intel import OVModelForFeatureExtraction
        from transformers import AutoTokenizer

        self._tokenizer = AutoTokenizer.from_pretrained(str(work))
        self._model = OVModelForFeatureExtraction.from_pretrained(
            str(work), local_files_only=True, ov_config={"INFERENCE_NUM_THREADS": str(threads)}
        )

    def encode(self, texts: list[str]) -> Any:
        import numpy as np

        return np.concatenate([self._batch(texts[at : at + BATCH]) for at in range(0, len(texts), BATCH)])

    def _batch(self, texts: list[str]) -> Any:
        import numpy as np

        tokens = dict(self._tokenizer(texts, padding=True, truncation=True, max_length=MAXIMUM, return_tensors="np"))
        hidden = np.asarray(self._model(**tokens).last_hidden_state)
        mask = tokens["attention_mask"][..., None].astype(hidden.dtype)
        vectors = (hidden * mask).sum(1) / mask.sum(1)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
