"""OpenVINO GenAI's TextEmbeddingPipeline, which OpenVINO Model Server runs: tokenizer, encoder and pooling in C++."""

from __future__ import annotations

from pathlib import Path
from typing import Any

MAXIMUM, BATCH = 256, 32


def prepare(model: Path, work: Path, *, texts: list[str], int8: str) -> None:
    """The encoder with INT8 weights, or in static INT8 by NNCF, and the tokenizer as an OpenVINO model."""
    import openvino
    from openvino_tokenizers import convert_tokenizer
    from optimum.intel import OVModelForFeatureExtraction, OVWeightQuantizationConfig
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(model))
    options = (
        {"quantization_config": OVWeightQuantizationConfig(bits=8)} if int8 == "weights" else {"load_in_8bit": False}
    )
    encoder = OVModelForFeatureExtraction.from_pretrained(str(model), export=True, local_files_only=True, **options)
    if int8 == "static":
        encoder.model = _quantised(encoder.model, tokenizer, texts)
    openvino.save_model(encoder.model, work / "openvino_model.xml", compress_to_fp16=False)
    openvino.save_model(convert_tokenizer(tokenizer), work / "openvino_tokenizer.xml")
    encoder.config.save_pretrained(str(work))


def _quantised(model: Any, tokenizer: Any, texts: list[str]) -> Any:
    import nncf

    def tokens(text: str) -> dict[str, Any]:
        return dict(tokenizer(text, truncation=True, max_length=MAXIMUM, return_tensors="np"))

    return nncf.quantize(
        model,
        nncf.Dataset(texts, tokens),
        model_type=nncf.ModelType.TRANSFORMER,
        subset_size=len(texts),
        advanced_parameters=nncf.AdvancedQuantizationParameters(smooth_quant_alpha=0.95),
    )


class Peer:
    def __init__(self, model: Path, work: Path, *, threads: int, int8: str) -> None:
        import openvino_genai

        config = openvino_genai.TextEmbeddingPipeline.Config()
        config.pooling_type = openvino_genai.TextEmbeddingPipeline.PoolingType.MEAN
        config.normalize = True
        config.max_length = MAXIMUM
        self._pipeline = openvino_genai.TextEmbeddingPipeline(str(work), "CPU", config, INFERENCE_NUM_THREADS=threads)

    def encode(self, texts: list[str]) -> Any:
        """In order of length and 32 at a time, as sentence-transformers does it."""
        import numpy as np

        order = sorted(range(len(texts)), key=lambda index: -len(texts[index]))
        vectors: list[Any] = [None] * len(texts)
        for begin in range(0, len(order), BATCH):
            batch = order[begin : begin + BATCH]
            for index, vector in zip(batch, self._pipeline.embed_documents([texts[i] for i in batch]), strict=True):
                vectors[index] = vector
        return np.asarray(vectors, np.float32)
